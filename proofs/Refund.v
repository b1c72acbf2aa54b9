(* Giving back what was taken.

   A take may be undone: a login succeeded, or another part of a decision failed elsewhere. What has drained since the take was given back by
   time already, so only u - n*(now - taken) is given back, never less than nothing. The theorem compares with a bucket that never saw the
   take: whatever else the first bucket admits, between the take and the refund and after it, the second admits as well, at the same times,
   and it never owes more. So a refund grants nothing, and everything that was admitted and not refunded stays inside the envelope. *)

Require Import ZArith Lia List Bool.
From Headgate Require Import Arithmetic Bucket.
Import ListNotations.
Open Scope Z_scope.

Definition give_back (p : shape) (u elapsed : Z) : Z := Z.max 0 (u - n p * Z.max 0 elapsed).

(* State.Refund, of u units that were charged when the clock read taken. *)
Definition refund (p : shape) (s : state) (now u taken : Z) : state :=
  let latest := Z.max (stamp s) now in
  State (Z.max 0 (owed p s now - give_back p u (latest - taken))) latest.

(* Everything back at once: as if nothing had happened. *)
Theorem a_refund_at_once_is_exact : forall p s now u t, valid p -> sound p s -> 0 < u -> stamp s <= now -> now <= t ->
  snd (charge p s now u) = true -> owed p (refund p (fst (charge p s now u)) now u now) t = owed p s t.
Proof.
  intros p s now u t Hv Hs Hu Hst Ht Hok.
  destruct (charge_cases p s now u) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R in *; cbn [fst snd] in *; [lia| |discriminate].
  pose proof (a_charge_is_owed_at_its_stamp p s now u Hv ltac:(lia)) as Ho.
  unfold refund. cbn [charged stamp]. replace (Z.max (Z.max (stamp s) now) now) with now by lia.
  replace (Z.max (stamp s) now) with now in Ho by lia. fold (charged p s now u). rewrite Ho.
  unfold give_back. rewrite Z.sub_diag, Z.mul_0_r. pose proof (owed_is_not_negative p s now).
  rewrite (what_is_owed_falls_exactly_from_the_stamp_on p s now t) by assumption.
  unfold owed at 1; cbn [debt stamp]. replace (Z.max 0 (t - now)) with (t - now) by lia. lia.
Qed.

(* To give back everything later on would be too much. Five units are taken at 0 and have drained at 5, when three more are taken.
   With the rule, nothing is given back; without it, the three would be forgotten. *)
Example what_the_rule_is_for :
  let p := Shape 1 1 10 in
  let s := fst (charge p (fst (charge p (State 0 0) 0 5)) 5 3) in
  debt (refund p s 5 5 0) = 3 /\ owed p s 5 - 5 < 0.
Proof. cbn. split; reflexivity. Qed.

(* The bucket b that never saw the take lags behind a by at least what may be given back. *)
Definition behind (p : shape) (a b : state) (gap : Z) : Prop :=
  stamp b <= stamp a /\ owed p b (stamp a) + gap <= debt a.

Lemma a_charge_in_the_past_is_owed_less : forall p b t c later, valid p -> 0 <= c -> stamp b <= t -> t <= later ->
  owed p (charged p b t c) later <= owed p b later + c.
Proof.
  intros p b t c later Hv Hc Hb Ht. rewrite a_charge_is_owed by (assumption || lia). replace (Z.max (stamp b) t) with t by lia.
  rewrite (what_is_owed_falls_exactly_from_the_stamp_on p b t later) by assumption. destruct Hv. nia.
Qed.

(* One request against a, and against b at the stamp that a gave it. *)
Lemma who_owes_less_admits_as_well : forall p a b gap now c, valid p -> sound p a -> sound p b -> 0 <= gap -> 0 <= c -> behind p a b gap ->
  snd (charge p a now c) = true ->
  let a' := fst (charge p a now c) in
  let b' := fst (charge p b (stamp a') c) in
  snd (charge p b (stamp a') c) = true /\ behind p a' b' (Z.max 0 (gap - n p * (stamp a' - stamp a))).
Proof.
  intros p a b gap now c Hv Ha Hb Hg Hc [Hst Hd] Hok a' b'. subst b'.
  subst a'. destruct (charge_cases p a now c) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R in *; cbn [fst snd] in *; [| |discriminate].
  - subst c. unfold charge; cbn. split; [reflexivity|]. rewrite Z.sub_diag, Z.mul_0_r. split; [assumption|lia].
  - cbn [charged stamp]. set (t := Z.max (stamp a) now) in *.
    assert (Hot : owed p b t + Z.max 0 (gap - n p * (t - stamp a)) <= owed p a now).
    { rewrite <- (owed_at_the_later_of_stamp_and_now p a now). fold t.
      rewrite (what_is_owed_falls_exactly_from_the_stamp_on p a (stamp a) t) by (assumption || lia).
      rewrite (what_is_owed_falls_exactly_from_the_stamp_on p b (stamp a) t) by (assumption || lia).
      rewrite (before_the_stamp_all_is_owed p a (stamp a)) by (destruct Ha; lia).
      pose proof (owed_is_not_negative p b (stamp a)). destruct Hv. nia. }
    fold t. destruct (charge_cases p b t c) as [[E2 R2]|[[E2 [F2 R2]]|[E2 [F2 R2]]]]; rewrite R2; cbn [fst snd]; [lia| |lia].
    split; [reflexivity|]. split; cbn [charged stamp debt]; [lia|].
    pose proof (a_charge_in_the_past_is_owed_less p b t c t Hv Hc ltac:(lia) ltac:(lia)) as H. fold t. lia.
Qed.

Lemma less_gap : forall p a b gap gap', behind p a b gap -> gap' <= gap -> behind p a b gap'.
Proof. intros p a b gap gap' [H1 H2] Hle. split; [assumption|lia]. Qed.

(* A whole schedule against a, and what of it a admitted against b. *)
Lemma who_owes_less_admits_all_the_same : forall rs p a b gap, valid p -> sound p a -> sound p b -> 0 <= gap -> costs rs -> behind p a b gap ->
  let l := ledger p a rs in
  let a' := finally p a rs in
  let b' := finally p b l in
  admits_all p b l /\ costs l /\ forward (stamp a) l /\ sound p a' /\ sound p b' /\ stamp a <= stamp a' /\
  behind p a' b' (Z.max 0 (gap - n p * (stamp a' - stamp a))).
Proof.
  induction rs as [|[now c] rest IH]; intros p a b gap Hv Ha Hb Hg Hc Hbeh; cbn zeta.
  - cbn [ledger finally admits_all forward]. rewrite Z.sub_diag, Z.mul_0_r.
    repeat (split; [first [exact I | assumption | constructor | lia]|]). apply (less_gap p a b gap); [assumption|lia].
  - inversion Hc as [|x y Hu Hrest]; subst; cbn [snd] in Hu. cbn [ledger finally].
    pose proof (every_bucket_stays_between_empty_and_full p a now c Hv Ha Hu) as Ha'.
    pose proof (the_stamp_never_falls p a now c) as Hstamp.
    pose proof (who_owes_less_admits_as_well p a b gap now c Hv Ha Hb Hg Hu Hbeh) as Hstep. cbn zeta in Hstep.
    pose proof (a_denied_request_leaves_the_bucket_as_it_was p a now c) as Hden.
    destruct (charge p a now c) as [a1 ok] eqn:E. cbn [fst snd] in *. destruct ok.
    + destruct (Hstep eq_refl) as [Hok Hbeh1].
      pose proof (every_bucket_stays_between_empty_and_full p b (stamp a1) c Hv Hb Hu) as Hb'.
      specialize (IH p a1 (fst (charge p b (stamp a1) c)) _ Hv Ha' Hb' (Z.le_max_l 0 _) Hrest Hbeh1). cbn zeta in IH.
      destruct IH as (I1 & I2 & I3 & I4 & I5 & I6 & I7). cbn [admits_all finally forward fst snd].
      split; [split; assumption|]. split; [constructor; assumption|]. split; [split; assumption|].
      split; [assumption|]. split; [assumption|]. split; [lia|].
      eapply less_gap; [exact I7|]. destruct Hv. nia.
    + rewrite (Hden eq_refl) in *. apply IH; assumption.
Qed.

(* All that was admitted, but for the take that was refunded: before is between the take and the refund, after is after it. *)
Theorem a_refund_never_grants : forall p s taken u before now after, valid p -> sound p s -> 0 < u -> costs before -> costs after ->
  snd (charge p s taken u) = true ->
  let with_take := finally p (fst (charge p s taken u)) before in
  let refunded := refund p with_take now u taken in
  let kept := ledger p (fst (charge p s taken u)) before ++ ledger p refunded after in
  admits_all p s kept /\
  (forall t, stamp (finally p refunded after) <= t -> owed p (finally p s kept) t <= owed p (finally p refunded after) t) /\
  (forall lo hi, lo <= hi -> total lo hi kept <= B p + n p * (hi - lo)).
Proof.
  intros p s taken u before now after Hv Hs Hu Hcb Hca Hok with_take refunded kept.
  pose proof (every_bucket_stays_between_empty_and_full p s taken u Hv Hs ltac:(lia)) as Ha0.
  assert (H0 : behind p (fst (charge p s taken u)) s u /\ stamp (fst (charge p s taken u)) = Z.max (stamp s) taken).
  { destruct (charge_cases p s taken u) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R in *; cbn [fst snd] in *; [lia| |discriminate].
    split; [|reflexivity]. split; cbn [charged stamp debt]; [lia|]. rewrite owed_at_the_later_of_stamp_and_now. lia. }
  destruct H0 as [Hbeh Hstamp]. set (a0 := fst (charge p s taken u)) in *.
  pose proof (who_owes_less_admits_all_the_same before p a0 s u Hv Ha0 Hs ltac:(lia) Hcb Hbeh) as H1. cbn zeta in H1. fold with_take in H1.
  set (l1 := ledger p a0 before) in *. set (b1 := finally p s l1) in *.
  destruct H1 as (A1 & C1 & F1 & Sa1 & Sb1 & St1 & [G1 G2]).
  assert (Hr : sound p refunded /\ stamp with_take <= stamp refunded /\ behind p refunded b1 0).
  { unfold refunded, refund. set (latest := Z.max (stamp with_take) now). cbn [stamp].
    pose proof (owed_is_at_most_the_debt p with_take now Hv (proj1 Sa1)) as Hle.
    assert (Hgive : give_back p u (latest - taken) <= Z.max 0 (Z.max 0 (u - n p * (stamp with_take - stamp a0)) - n p * (latest - stamp with_take))).
    { unfold give_back. destruct Hv. rewrite Hstamp. nia. }
    assert (H0 : 0 <= give_back p u (latest - taken)) by (unfold give_back; lia).
    split; [unfold sound; cbn [debt]; destruct Sa1; lia|]. split; [lia|]. split; cbn [stamp debt]; [lia|].
    rewrite <- (owed_at_the_later_of_stamp_and_now p with_take now). fold latest.
    rewrite (what_is_owed_falls_exactly_from_the_stamp_on p with_take (stamp with_take) latest) by (assumption || lia).
    rewrite (before_the_stamp_all_is_owed p with_take (stamp with_take)) by (destruct Sa1; lia).
    rewrite (what_is_owed_falls_exactly_from_the_stamp_on p b1 (stamp with_take) latest) by (assumption || lia).
    pose proof (owed_is_not_negative p b1 (stamp with_take)). destruct Hv. nia. }
  destruct Hr as (Sr & Hst & Hbr).
  pose proof (who_owes_less_admits_all_the_same after p refunded b1 0 Hv Sr Sb1 ltac:(lia) Hca Hbr) as H2. cbn zeta in H2.
  destruct H2 as (A2 & C2 & F2 & Sa2 & Sb2 & St2 & [G3 G4]).
  set (l2 := ledger p refunded after) in *.
  assert (Happ : forall l l' s0, admits_all p s0 l -> admits_all p (finally p s0 l) l' -> admits_all p s0 (l ++ l') /\ finally p s0 (l ++ l') = finally p (finally p s0 l) l').
  { clear. induction l as [|[t c] l IH]; intros l' s0 H H'; cbn [app finally admits_all] in *; [split; [assumption|reflexivity]|].
    destruct H as [Hok H]. destruct (IH l' _ H H') as [I1 I2]. split; [split; assumption|assumption]. }
  destruct (Happ l1 l2 s A1 A2) as [K1 K2]. fold kept in K1, K2. fold b1 in K2.
  split; [assumption|]. split.
  - intros t Ht. rewrite K2.
    rewrite (what_is_owed_falls_exactly_from_the_stamp_on p _ (stamp (finally p refunded after)) t Hv G3 Ht).
    rewrite (what_is_owed_falls_exactly_from_the_stamp_on p (finally p refunded after) (stamp (finally p refunded after)) t) by (assumption || lia).
    rewrite (before_the_stamp_all_is_owed p (finally p refunded after)) by (destruct Sa2; lia). lia.
  - intros lo hi Hi. apply (what_one_bucket_admits_obeys_the_envelope p s); try assumption.
    + apply Forall_app; split; assumption.
    + assert (Hf : forall l l' t t', t <= t' -> forward t l -> forward t' l' -> (forall x, In x l -> fst x <= t') -> forward t (l ++ l')).
      { clear. induction l as [|[t1 c] l IH]; intros l' t t' Ht H H' Hin; cbn [app forward] in *.
        - destruct l' as [|[t2 c] l']; cbn in *; [exact I|]. destruct H'. split; [lia|assumption].
        - destruct H as [H1 H]. split; [assumption|]. apply (IH l' t1 t'); try assumption.
          + apply (Hin (t1, c)). left; reflexivity.
          + intros x Hx. apply Hin. right; assumption. }
      apply (Hf l1 l2 (stamp s) (stamp refunded)); try assumption; [lia| |].
      * destruct l1 as [|[t1 c1] l1']; [exact I|]. cbn [forward] in *. destruct F1. split; [lia|assumption].
      * assert (Hle : forall rs a x, In x (ledger p a rs) -> fst x <= stamp (finally p a rs)).
        { clear. induction rs as [|[now c] rs IH]; intros a x Hin; cbn [ledger finally] in *; [destruct Hin|].
          destruct (charge p a now c) as [a1 ok]. cbn [fst]. destruct ok; [|apply IH; assumption]. destruct Hin as [<-|Hin]; [|apply IH; assumption].
          cbn [fst]. clear IH. revert a1. induction rs as [|[t d] rs IH]; intro a1; cbn [finally]; [lia|].
          pose proof (the_stamp_never_falls p a1 t d). specialize (IH (fst (charge p a1 t d))). lia. }
        intros x Hx. pose proof (Hle before a0 x Hx). fold with_take in H. lia.
Qed.
