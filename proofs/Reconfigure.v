(* A limit that changes.

   A bucket that changes from one shape to another keeps what is owed, in tokens, rounded up to a unit of the new shape, but never owes
   more than the new burst. Over any window across the change this admits at most the larger of the two bursts, and what drains at
   the old rate before the change and at the new rate after it. A full bucket stays full, so it makes no difference whether a full bucket was
   forgotten before the change.

   A limit may change any number of times, with or without charges in between: then each limit counts for its own part of the time, and
   each change may add the upward jump of its burst. Where it is no longer known which limits held for a time, nothing drains in it. *)

Require Import ZArith QArith Qminmax Lqa Lia List Bool.
From Headgate Require Import Arithmetic Bucket.
Import ListNotations.
Open Scope Z_scope.

(* State.Convert. *)
Definition convert (old new : shape) (s : state) (change : Z) : state :=
  State (Z.min (ceil_div (owed old s change * P new) (P old)) (B new)) (Z.max (stamp s) change).

Lemma scaled_debt_is_not_negative : forall old new s change, valid old -> valid new ->
  0 <= ceil_div (owed old s change * P new) (P old).
Proof.
  intros old new s change (_ & HP & _) (_ & HP' & _). pose proof (owed_is_not_negative old s change).
  pose proof (ceil_div_suffices (owed old s change * P new) (P old) HP). nia.
Qed.

(* Nobody is locked out for longer than the new limit takes to fill. *)
Theorem a_converted_bucket_owes_at_most_the_new_burst : forall old new s change, valid old -> valid new ->
  sound new (convert old new s change).
Proof.
  intros old new s change Hold Hnew. pose proof (scaled_debt_is_not_negative old new s change Hold Hnew).
  destruct Hnew as (_ & _ & HB). unfold sound, convert; cbn [debt]. lia.
Qed.

Theorem a_full_bucket_stays_full : forall old new s change, valid old -> valid new -> owed old s change = 0 ->
  debt (convert old new s change) = 0.
Proof.
  intros old new s change (_ & HP & _) (_ & _ & HB) E. unfold convert; cbn [debt]. rewrite E. cbn.
  unfold ceil_div. rewrite Z.div_small by lia. lia.
Qed.

(* In a window that is open to the end, what was admitted is still owed or has drained. *)
Lemma what_was_admitted_is_owed_or_drained : forall rs p s lo, valid p -> sound p s -> costs rs ->
  let f := finally p s rs in
  let from := Z.max lo (stamp s) in let to := Z.max lo (stamp f) in
  sound p f /\ from <= to /\
  forall hi, to <= hi -> total lo hi (ledger p s rs) + owed p s from <= owed p f to + n p * (to - from).
Proof.
  induction rs as [|[now u] rest IH]; intros p s lo Hv Hs Hc; cbn zeta.
  - cbn [finally ledger total]. split; [assumption|split; [lia|intros; lia]].
  - inversion Hc as [|x l Hu Hrest]; subst; cbn [snd] in Hu. cbn [ledger finally].
    pose proof (every_bucket_stays_between_empty_and_full p s now u Hv Hs Hu) as Hs'.
    specialize (IH p (fst (charge p s now u)) lo Hv Hs' Hrest). cbn zeta in IH. destruct IH as (IH1 & IH2 & IH3).
    pose proof (the_stamp_never_falls p s now u) as Hstamp.
    split; [assumption|]. split; [lia|]. intros hi Hto. specialize (IH3 hi Hto).
    destruct (charge_cases p s now u) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R in *; cbn [fst] in *; [| |assumption].
    + subst u. cbn [total]. destruct (_ && _); lia.
    + cbn [total charged stamp] in *. fold (charged p s now u) in *.
      set (t := Z.max (stamp s) now) in *. set (f := finally p (charged p s now u) rest) in *.
      destruct (lo <=? t) eqn:Elo; [apply Z.leb_le in Elo|apply Z.leb_gt in Elo]; cbn [andb].
      * replace (t <=? hi) with true by (symmetry; apply Z.leb_le; lia). replace (Z.max lo t) with t in * by lia.
        unfold t in IH3 at 2. rewrite a_charge_is_owed_at_its_stamp in IH3 by assumption. fold t in IH3.
        pose proof (what_is_owed_falls_by_what_drains p s (Z.max lo (stamp s)) t Hv ltac:(lia)) as H.
        unfold t in H at 2. rewrite owed_at_the_later_of_stamp_and_now in H. nia.
      * replace (Z.max lo t) with lo in * by lia. replace (Z.max lo (stamp s)) with lo in * by lia.
        destruct (a_charge_only_adds p s now u lo Hv (proj1 Hs) Hu) as [H|H]; lia.
Qed.

(* The envelope in whole numbers: both sides are multiplied by the units in a token of either shape. *)
Lemma reconfiguration_envelope_in_units : forall old new s before change after lo hi,
  valid old -> valid new -> sound old s -> costs before -> costs after ->
  let at_rest := finally old s before in
  let converted := convert old new at_rest change in
  lo <= stamp converted <= hi ->
  total lo hi (ledger old s before) * P new + total lo hi (ledger new converted after) * P old <=
    Z.max (B old * P new) (B new * P old) + n old * P new * (stamp converted - lo) + n new * P old * (hi - stamp converted).
Proof.
  intros old new s before change after lo hi Hold Hnew Hs Hcb Hca at_rest converted Hwin.
  pose proof (what_was_admitted_is_owed_or_drained before old s lo Hold Hs Hcb) as H. cbn zeta in H. fold at_rest in H.
  destruct H as (Hf & Hfrom & Hbefore).
  pose proof (a_converted_bucket_owes_at_most_the_new_burst old new at_rest change Hold Hnew) as Hconv. fold converted in Hconv.
  pose proof (from_here_on after new converted lo hi Hnew Hconv Hca) as Hafter. cbn zeta in Hafter.
  assert (Hst : stamp converted = Z.max (stamp at_rest) change) by reflexivity.
  replace (Z.max lo (stamp converted)) with (stamp converted) in Hafter by lia.
  replace (stamp converted <=? hi) with true in Hafter by (symmetry; apply Z.leb_le; lia).
  rewrite (before_the_stamp_all_is_owed new converted) in Hafter by (destruct Hconv; lia).
  specialize (Hbefore hi ltac:(lia)).
  (* what is owed at the change *)
  pose proof (what_is_owed_falls_by_what_drains old at_rest (Z.max lo (stamp at_rest)) (stamp converted) Hold ltac:(lia)) as Hdrain.
  rewrite Hst in Hdrain at 2. rewrite owed_at_the_later_of_stamp_and_now in Hdrain.
  pose proof (owed_is_not_negative old s (Z.max lo (stamp s))) as Hpos.
  set (D1 := owed old at_rest change) in *.
  assert (HA1 : total lo hi (ledger old s before) <= D1 + n old * (stamp converted - lo)) by (destruct Hold; nia).
  assert (HD1 : 0 <= D1 <= B old) by
    (split; [apply owed_is_not_negative | unfold D1; pose proof (owed_is_at_most_the_debt old at_rest change Hold (proj1 Hf)); destruct Hf; lia]).
  assert (HD2 : debt converted = Z.min (ceil_div (D1 * P new) (P old)) (B new)) by reflexivity.
  destruct Hold as (Hn1 & HP1 & HB1), Hnew as (Hn2 & HP2 & HB2).
  pose proof (ceil_div_suffices (D1 * P new) (P old) HP1) as Hceil.
  assert (Hjump : D1 * P new - debt converted * P old + B new * P old <= Z.max (B old * P new) (B new * P old)) by
    (rewrite HD2; destruct (Z.min_spec (ceil_div (D1 * P new) (P old)) (B new)) as [[_ ->]|[_ ->]]; nia).
  apply (Z.mul_le_mono_nonneg_r _ _ (P new)) in HA1; [|lia]. apply (Z.mul_le_mono_nonneg_r _ _ (P old)) in Hafter; [|lia]. nia.
Qed.

Open Scope Q_scope.

(* Units as tokens; what a bucket holds in tokens; what it drains in a tick, in tokens. *)
Definition tokens (p : shape) (units : Z) : Q := inject_Z units / inject_Z (P p).
Definition burst (p : shape) : Q := tokens p (B p).
Definition rate (p : shape) : Q := tokens p (n p).

(* Over any window from lo to hi with one change of shape inside, the admitted tokens are at most the larger burst, and what drains at the
   old rate until the change and at the new rate from then on. *)
Theorem across_a_change_at_most_the_larger_burst_and_what_drains_is_admitted : forall old new s before change after lo hi,
  valid old -> valid new -> sound old s -> costs before -> costs after ->
  let at_rest := finally old s before in
  let converted := convert old new at_rest change in
  (lo <= stamp converted <= hi)%Z ->
  tokens old (total lo hi (ledger old s before)) + tokens new (total lo hi (ledger new converted after)) <=
    Qmax (burst old) (burst new) + rate old * inject_Z (stamp converted - lo) + rate new * inject_Z (hi - stamp converted).
Proof.
  intros old new s before change after lo hi Hold Hnew Hs Hcb Hca at_rest converted Hwin.
  pose proof (reconfiguration_envelope_in_units old new s before change after lo hi Hold Hnew Hs Hcb Hca Hwin) as H.
  fold at_rest in H. fold converted in H.
  set (A1 := total lo hi (ledger old s before)) in *. set (A2 := total lo hi (ledger new converted after)) in *.
  set (t1 := (stamp converted - lo)%Z) in *. set (t2 := (hi - stamp converted)%Z) in *.
  destruct Hold as (_ & HP1 & _), Hnew as (_ & HP2 & _).
  assert (Hboth : 0 < inject_Z (P old * P new)) by (change 0 with (inject_Z 0); rewrite <- Zlt_Qlt; nia).
  assert (N1 : ~ inject_Z (P old) == 0) by (change 0 with (inject_Z 0); rewrite inject_Z_injective; lia).
  assert (N2 : ~ inject_Z (P new) == 0) by (change 0 with (inject_Z 0); rewrite inject_Z_injective; lia).
  apply (Qmult_le_r _ _ (inject_Z (P old * P new))); [assumption|].
  assert (L : (tokens old A1 + tokens new A2) * inject_Z (P old * P new) == inject_Z (A1 * P new + A2 * P old)).
  { unfold tokens. rewrite inject_Z_plus, !inject_Z_mult. field. split; assumption. }
  rewrite L.
  assert (R : forall b, (b + rate old * inject_Z t1 + rate new * inject_Z t2) * inject_Z (P old * P new) ==
    b * inject_Z (P old * P new) + inject_Z (n old * P new * t1 + n new * P old * t2)).
  { intro b. unfold rate, tokens. rewrite inject_Z_plus, !inject_Z_mult. field. split; assumption. }
  rewrite R.
  assert (B1 : burst old * inject_Z (P old * P new) == inject_Z (B old * P new)).
  { unfold burst, tokens. rewrite !inject_Z_mult. field. assumption. }
  assert (B2 : burst new * inject_Z (P old * P new) == inject_Z (B new * P old)).
  { unfold burst, tokens. rewrite !inject_Z_mult. field. assumption. }
  assert (M : inject_Z (Z.max (B old * P new) (B new * P old)) <= Qmax (burst old) (burst new) * inject_Z (P old * P new)).
  { destruct (Z.max_spec (B old * P new) (B new * P old)) as [[_ ->]|[_ ->]].
    - rewrite <- B2. apply Qmult_le_compat_r; [apply Q.le_max_r | apply Qlt_le_weak; assumption].
    - rewrite <- B1. apply Qmult_le_compat_r; [apply Q.le_max_l | apply Qlt_le_weak; assumption]. }
  eapply Qle_trans; [|apply Qplus_le_compat; [exact M | apply Qle_refl]].
  rewrite <- inject_Z_plus, <- Zle_Qle. lia.
Qed.

Open Scope Z_scope.

(** * Any number of changes *)

(* Held.Follow, one step: the shape old is known to have been in force until known; then nothing drains until new takes effect at change.
   Usually both are the same time. *)
Definition convert_held (old new : shape) (s : state) (known change : Z) : state :=
  State (Z.min (ceil_div (owed old s known * P new) (P old)) (B new)) (Z.max (stamp s) change).

Theorem holding_for_no_time_is_converting : forall old new s change, convert_held old new s change change = convert old new s change.
Proof. reflexivity. Qed.

(* A shape that takes effect at change, and what is asked of the bucket under it: maybe nothing. *)
Record reign := Reign { known : Z; change : Z; under : shape; asked : schedule }.

Definition entered (p : shape) (s : state) (rs : schedule) (r : reign) : state :=
  convert_held p (under r) (finally p s rs) (known r) (change r).

(* The window from lo to hi begins before the first change and ends after the last. *)
Fixpoint within (p : shape) (s : state) (rs : schedule) (lo hi : Z) (later : list reign) : Prop :=
  match later with
  | [] => lo <= hi /\ stamp s <= hi
  | r :: rest => valid (under r) /\ costs (asked r) /\ known r <= change r /\ lo <= stamp (entered p s rs r) /\
      within (under r) (entered p s rs r) (asked r) lo hi rest
  end.

Lemma the_stamp_never_falls_in_a_schedule : forall rs p s, stamp s <= stamp (finally p s rs).
Proof.
  induction rs as [|[now u] rest IH]; intros p s; [cbn; lia|]. cbn [finally].
  pose proof (the_stamp_never_falls p s now u). specialize (IH p (fst (charge p s now u))). lia.
Qed.

Lemma a_window_ends_after_all_changes : forall later p s rs lo hi, within p s rs lo hi later -> Z.max lo (stamp s) <= hi.
Proof.
  induction later as [|r rest IH]; intros p s rs lo hi H; cbn [within] in H; [lia|].
  destruct H as (_ & _ & _ & _ & H). apply IH in H. unfold entered, convert_held in H; cbn [stamp] in H.
  pose proof (the_stamp_never_falls_in_a_schedule rs p s). lia.
Qed.

Open Scope Q_scope.

(* The tokens that are admitted in the window. *)
Fixpoint admitted_by_all (p : shape) (s : state) (rs : schedule) (lo hi : Z) (later : list reign) : Q :=
  match later with
  | [] => tokens p (total lo hi (ledger p s rs))
  | r :: rest => tokens p (total lo hi (ledger p s rs)) + admitted_by_all (under r) (entered p s rs r) (asked r) lo hi rest
  end.

(* What drains in the window: at the rate of each shape, while that is known to be in force. *)
Fixpoint drained_by_all (p : shape) (s : state) (rs : schedule) (lo hi : Z) (later : list reign) : Q :=
  match later with
  | [] => rate p * inject_Z (hi - Z.max lo (stamp s))
  | r :: rest => rate p * inject_Z (Z.max lo (Z.max (stamp (finally p s rs)) (known r)) - Z.max lo (stamp s)) +
      drained_by_all (under r) (entered p s rs r) (asked r) lo hi rest
  end.

(* By how much the burst rises, each time that it does. *)
Fixpoint rises (p : shape) (later : list reign) : Q :=
  match later with
  | [] => 0
  | r :: rest => (Qmax (burst p) (burst (under r)) - burst p) + rises (under r) rest
  end.

Lemma more_units_are_more_tokens : forall p a b, valid p -> (a <= b)%Z -> tokens p a <= tokens p b.
Proof.
  intros p a b (_ & HP & _) H. unfold tokens, Qdiv. apply Qmult_le_compat_r; [rewrite <- Zle_Qle; assumption|].
  apply Qinv_le_0_compat. change 0 with (inject_Z 0). rewrite <- Zle_Qle. lia.
Qed.

Lemma tokens_add : forall p a b, valid p -> tokens p (a + b) == tokens p a + tokens p b.
Proof.
  intros p a b (_ & HP & _). unfold tokens. rewrite inject_Z_plus. field.
  change 0 with (inject_Z 0). rewrite inject_Z_injective. lia.
Qed.

Lemma tokens_that_drain : forall p t, valid p -> tokens p (n p * t) == rate p * inject_Z t.
Proof.
  intros p t (_ & HP & _). unfold rate, tokens. rewrite inject_Z_mult. field.
  change 0 with (inject_Z 0). rewrite inject_Z_injective. lia.
Qed.

(* What a change forgives is what did not fit. *)
Lemma a_change_forgives_at_most_the_fall : forall old new s at_ change, valid old -> valid new -> sound old s ->
  tokens old (owed old s at_) <= tokens new (debt (convert_held old new s at_ change)) + (Qmax (burst old) (burst new) - burst new).
Proof.
  intros old new s at_ change Hold Hnew Hs.
  assert (HD : (0 <= owed old s at_ <= B old)%Z) by
    (split; [apply owed_is_not_negative | pose proof (owed_is_at_most_the_debt old s at_ Hold (proj1 Hs)); destruct Hs; lia]).
  unfold convert_held; cbn [debt]. set (D := owed old s at_) in *.
  destruct (Z.min_spec (ceil_div (D * P new) (P old)) (B new)) as [[_ ->]|[_ ->]].
  - assert (H : tokens old D <= tokens new (ceil_div (D * P new) (P old))).
    { destruct Hold as (_ & HP1 & _), Hnew as (_ & HP2 & _).
      pose proof (ceil_div_suffices (D * P new) (P old) HP1) as Hc. unfold tokens, Qdiv.
      assert (Hboth : 0 < inject_Z (P old * P new)) by (change 0 with (inject_Z 0); rewrite <- Zlt_Qlt; nia).
      assert (N1 : ~ inject_Z (P old) == 0) by (change 0 with (inject_Z 0); rewrite inject_Z_injective; lia).
      assert (N2 : ~ inject_Z (P new) == 0) by (change 0 with (inject_Z 0); rewrite inject_Z_injective; lia).
      apply (Qmult_le_r _ _ (inject_Z (P old * P new))); [assumption|].
      setoid_replace (inject_Z D * / inject_Z (P old) * inject_Z (P old * P new)) with (inject_Z (D * P new))
        by (rewrite !inject_Z_mult; field; assumption).
      setoid_replace (inject_Z (ceil_div (D * P new) (P old)) * / inject_Z (P new) * inject_Z (P old * P new))
        with (inject_Z (ceil_div (D * P new) (P old) * P old)) by (rewrite !inject_Z_mult; field; assumption).
      rewrite <- Zle_Qle. lia. }
    pose proof (Q.le_max_r (burst old) (burst new)). lra.
  - fold (burst new). pose proof (more_units_are_more_tokens old D (B old) Hold ltac:(lia)). fold (burst old) in *.
    pose proof (Q.le_max_l (burst old) (burst new)). lra.
Qed.

Lemma what_is_admitted_by_all_is_owed_or_drained : forall later p s rs lo hi, valid p -> sound p s -> costs rs ->
  within p s rs lo hi later ->
  admitted_by_all p s rs lo hi later + tokens p (owed p s (Z.max lo (stamp s))) <=
    burst p + rises p later + drained_by_all p s rs lo hi later.
Proof.
  induction later as [|r rest IH]; intros p s rs lo hi Hv Hs Hc Hw; cbn [admitted_by_all drained_by_all rises].
  - cbn [within] in Hw. pose proof (from_here_on rs p s lo hi Hv Hs Hc) as H. cbn zeta in H.
    replace (Z.max lo (stamp s) <=? hi)%Z with true in H by (symmetry; apply Z.leb_le; lia).
    assert (H' : (total lo hi (ledger p s rs) + owed p s (Z.max lo (stamp s)) <= B p + n p * (hi - Z.max lo (stamp s)))%Z) by lia.
    apply (more_units_are_more_tokens p _ _ Hv) in H'. rewrite !tokens_add, tokens_that_drain in H' by assumption. fold (burst p) in H'. lra.
  - pose proof (a_window_ends_after_all_changes (r :: rest) p s rs lo hi Hw) as Hend.
    cbn [within] in Hw. destruct Hw as (Hq & Hcq & Hk & Hlo & Hw).
    pose proof (a_window_ends_after_all_changes rest _ _ _ _ _ Hw) as Hend'.
    pose proof (what_was_admitted_is_owed_or_drained rs p s lo Hv Hs Hc) as H. cbn zeta in H. destruct H as (Hf & Hft & H).
    set (f := finally p s rs) in *.
    assert (Hst : stamp (entered p s rs r) = Z.max (stamp f) (change r)) by reflexivity.
    specialize (H hi ltac:(lia)).
    assert (Hto : (Z.max lo (stamp f) <= Z.max lo (Z.max (stamp f) (known r)))%Z) by lia.
    set (K := Z.max lo (Z.max (stamp f) (known r))).
    pose proof (what_is_owed_falls_by_what_drains p f (Z.max lo (stamp f)) K Hv Hto) as Hfall.
    assert (HK : (owed p f K <= owed p f (known r))%Z).
    { rewrite <- (owed_at_the_later_of_stamp_and_now p f (known r)). apply what_is_owed_never_grows; [assumption|unfold K; lia]. }
    assert (H' : (total lo hi (ledger p s rs) + owed p s (Z.max lo (stamp s)) <= owed p f (known r) + n p * (K - Z.max lo (stamp s)))%Z).
    { replace (n p * (K - Z.max lo (stamp s)))%Z with (n p * (K - Z.max lo (stamp f)) + n p * (Z.max lo (stamp f) - Z.max lo (stamp s)))%Z by ring.
      lia. }
    apply (more_units_are_more_tokens p _ _ Hv) in H'. rewrite !tokens_add, tokens_that_drain in H' by assumption.
    pose proof (a_change_forgives_at_most_the_fall p (under r) f (known r) (change r) Hv Hq Hf) as Hj.
    change (convert_held p (under r) f (known r) (change r)) with (entered p s rs r) in Hj.
    assert (Hsound : sound (under r) (entered p s rs r)).
    { pose proof (owed_is_not_negative p f (known r)). destruct Hv as (_ & HP & _), Hq as (_ & HP' & HB').
      pose proof (ceil_div_suffices (owed p f (known r) * P (under r)) (P p) HP). unfold sound, entered, convert_held; cbn [debt]. fold f. nia. }
    specialize (IH (under r) (entered p s rs r) (asked r) lo hi Hq Hsound Hcq Hw).
    replace (Z.max lo (stamp (entered p s rs r))) with (stamp (entered p s rs r)) in IH by lia.
    rewrite (before_the_stamp_all_is_owed (under r) (entered p s rs r)) in IH by (destruct Hsound; lia).
    lra.
Qed.

(* Over any window with any number of changes in it, with or without charges between them, the admitted tokens are at most the first burst, each
   rise of the burst, and what drains at each rate while it is in force. *)
Theorem across_any_changes_at_most_the_burst_its_rises_and_what_drains_is_admitted : forall p s rs lo hi later,
  valid p -> sound p s -> costs rs -> within p s rs lo hi later ->
  admitted_by_all p s rs lo hi later <= burst p + rises p later + drained_by_all p s rs lo hi later.
Proof.
  intros p s rs lo hi later Hv Hs Hc Hw.
  pose proof (what_is_admitted_by_all_is_owed_or_drained later p s rs lo hi Hv Hs Hc Hw) as H.
  pose proof (more_units_are_more_tokens p 0 _ Hv (owed_is_not_negative p s (Z.max lo (stamp s)))) as H0.
  assert (E : tokens p 0 == 0) by (unfold tokens, Qdiv; change (inject_Z 0) with 0; ring). rewrite E in H0. lra.
Qed.
