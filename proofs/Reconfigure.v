(* A limit that changes.

   A bucket that changes from one shape to another keeps what is owed, in tokens, rounded up to a unit of the new shape, but never owes
   more than the new burst. Over any window across the change this admits at most the larger of the two bursts, and what drains at
   the old rate before the change and at the new rate after it. A full bucket stays full, so it makes no difference whether a full bucket was
   forgotten before the change. The theorem is about one change; a limit that is changed up and down many times may add the upward
   jump of its burst each time. *)

Require Import ZArith QArith Qminmax Lia List Bool.
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
