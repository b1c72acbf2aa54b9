(* Several buckets at once.

   One decision may ask something of several buckets: of the user's, the address's, the region's. It is allowed if and only if each of them
   alone would allow its part at that instant. If one denies, none is touched; if none does, each is charged as if it had been alone. Each
   bucket is named once: the store adds up what one decision asks of one bucket, which the last theorem shows to be what charging its
   parts in turn does. *)

Require Import ZArith Lia List Bool.
From Headgate Require Import Arithmetic Bucket.
Import ListNotations.
Open Scope Z_scope.

Section Decision.

(* What is asked of one bucket, how that bucket stands, and what it does when it is asked alone: of whatever kind it may be. *)
Variable part : Type.
Variable stands : part -> state.
Variable alone : part -> state * bool.

(* Store.TryConsume: the buckets after the decision, and the decision. *)
Definition all_or_nothing (parts : list part) : list state * bool :=
  if forallb (fun x => snd (alone x)) parts
  then (map (fun x => fst (alone x)) parts, true)
  else (map stands parts, false).

Theorem all_are_allowed_if_and_only_if_each_alone_would_be : forall parts,
  snd (all_or_nothing parts) = true <-> (forall x, In x parts -> snd (alone x) = true).
Proof.
  intro parts. unfold all_or_nothing. destruct (forallb _ parts) eqn:E; cbn [snd].
  - split; [intros _|reflexivity]. rewrite forallb_forall in E. assumption.
  - split; [discriminate|]. intro H. rewrite <- forallb_forall in H. congruence.
Qed.

Theorem a_denied_decision_leaves_every_bucket_as_it_was : forall parts,
  snd (all_or_nothing parts) = false -> fst (all_or_nothing parts) = map stands parts.
Proof. intro parts. unfold all_or_nothing. destruct (forallb _ parts); cbn; [discriminate|reflexivity]. Qed.

Theorem an_allowed_decision_charges_each_bucket_as_if_it_were_alone : forall parts,
  snd (all_or_nothing parts) = true -> fst (all_or_nothing parts) = map (fun x => fst (alone x)) parts.
Proof. intro parts. unfold all_or_nothing. destruct (forallb _ parts); cbn; [reflexivity|discriminate]. Qed.

End Decision.

(* Buckets as in Bucket.v. *)
Record part := Part { its_shape : shape; its_state : state; units : Z }.

Definition take_all (now : Z) : list part -> list state * bool :=
  all_or_nothing part its_state (fun x => charge (its_shape x) (its_state x) now (units x)).

(* A denied decision is invisible: whatever is asked of any of its buckets later is answered as if it had never been asked for. *)
Theorem a_denied_decision_changes_no_later_answer : forall now parts i x rs, snd (take_all now parts) = false -> nth_error parts i = Some x ->
  exists s, nth_error (fst (take_all now parts)) i = Some s /\ answers (its_shape x) s rs = answers (its_shape x) (its_state x) rs.
Proof.
  intros now parts i x rs Hd Hi. exists (its_state x). unfold take_all in *.
  rewrite a_denied_decision_leaves_every_bucket_as_it_was by assumption. rewrite nth_error_map, Hi. split; reflexivity.
Qed.

(* The client waits as long as the bucket that takes longest. Then all of them allow, if nobody took in between. *)
Theorem the_longest_wait_suffices_for_all : forall now parts w, 0 <= w ->
  (forall x, In x parts -> valid (its_shape x) /\ sound (its_shape x) (its_state x) /\ 0 < units x <= B (its_shape x)) ->
  (snd (take_all (now + w) parts) = true <-> forall x, In x parts -> retry_after (its_shape x) (its_state x) now (units x) <= w).
Proof.
  intros now parts w Hw H. unfold take_all. rewrite all_are_allowed_if_and_only_if_each_alone_would_be.
  assert (E : forall x, In x parts -> (snd (charge (its_shape x) (its_state x) (now + w) (units x)) = true <-> retry_after (its_shape x) (its_state x) now (units x) <= w)).
  { intros x Hx. destruct (H x Hx) as (Hv & Hs & Hu). rewrite charge_admits_what_fits by (assumption || lia).
    unfold retry_after. rewrite <- (until_is_exact (its_shape x) (its_state x) now _ (B (its_shape x) - units x) w) by (assumption || destruct Hs; lia). lia. }
  split; intros G x Hx; apply (E x Hx); auto.
Qed.

Theorem asking_for_a_sum_is_asking_for_its_parts_in_turn : forall p s now u v, valid p -> sound p s -> 0 <= u -> 0 <= v ->
  let (s1, ok1) := charge p s now u in
  let (s2, ok2) := charge p s1 now v in
  snd (charge p s now (u + v)) = ok1 && ok2 /\ (ok1 && ok2 = true -> agree_from p now (fst (charge p s now (u + v))) s2).
Proof.
  intros p s now u v Hv Hs Hu Hv0. destruct (charge p s now u) as [s1 ok1] eqn:E1. destruct (charge p s1 now v) as [s2 ok2] eqn:E2.
  pose proof (owed_is_not_negative p s now) as Hpos.
  pose proof (owed_is_at_most_the_debt p s now Hv (proj1 Hs)) as Hle. destruct Hs as [Hd HB].
  destruct (charge_cases p s now u) as [[U R]|[[U [F R]]|[U [F R]]]]; rewrite R in E1; injection E1 as <- <-.
  - subst u. cbn [andb]. rewrite Z.add_0_l, E2. cbn. split; [reflexivity|]. intros _ t _. split; reflexivity.
  - assert (Ho : owed p (charged p s now u) now = owed p s now + u).
    { rewrite <- owed_at_the_later_of_stamp_and_now. cbn [charged stamp].
      replace (Z.max (Z.max (stamp s) now) now) with (Z.max (stamp s) now) by lia.
      apply a_charge_is_owed_at_its_stamp; assumption. }
    destruct (charge_cases p (charged p s now u) now v) as [[V R2]|[[V [F2 R2]]|[V [F2 R2]]]]; rewrite R2 in E2; injection E2 as <- <-.
    + subst v. rewrite Z.add_0_r, R. cbn. split; [reflexivity|]. intros _ t _. split; reflexivity.
    + rewrite Ho in F2. destruct (charge_cases p s now (u + v)) as [[W R3]|[[W [F3 R3]]|[W [F3 R3]]]]; [lia| |lia]. rewrite R3. cbn [fst snd andb].
      split; [reflexivity|]. intros _. unfold charged at 1 2. rewrite Ho. cbn [charged stamp]. intros t Ht.
      replace (Z.max (Z.max (stamp s) now) now) with (Z.max (stamp s) now) by lia. rewrite Z.add_assoc. split; reflexivity.
    + rewrite Ho in F2. destruct (charge_cases p s now (u + v)) as [[W R3]|[[W [F3 R3]]|[W [F3 R3]]]]; [lia|lia|]. rewrite R3. cbn.
      split; [reflexivity|discriminate].
  - destruct (charge_cases p s now (u + v)) as [[W R3]|[[W [F3 R3]]|[W [F3 R3]]]]; [lia|lia|]. rewrite R3. cbn.
    split; [reflexivity|discriminate].
Qed.
