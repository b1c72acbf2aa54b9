(* A table of bounded size that forgets nothing.

   The table keeps the buckets of some keys. To make room it may evict any bucket at any time. One that is full leaves nothing behind. One
   that is in debt leaves a trace in a memory: from then on the memory reads, for its key, the time at which it would be full, or a later one,
   until that time has passed. A key that is in no slot begins with the debt that drains until the time the memory reads.

   A key that is in no slot and is denied may be parked: it gets a slot, in the state that was found, and is not charged. A parked bucket that was
   never charged since leaves nothing behind when it is evicted, whatever it owes.

   The first part assumes nothing of the memory but this: whatever happens to it at a time, what it reads for a key does not fall, unless it has
   passed by then. It may rise at any time. So nothing is assumed about hashes, nor about who is evicted and when, nor about what is in the memory
   at the beginning. The second part shows that the memory of the Go code is of this kind: a ledger of entries, of which any may be
   spilled into a sketch of several rows of cells at any time, and those that have passed may be dropped. Every key may have a shape of its own.

   The table is compared with one that has room for all buckets and is charged with what the bounded one admits. Clocks may be set back:
   then the unlimited table's clock stands still, and moves on when the other does. So its clock shows how far the real one has moved
   forward in all, and is the same clock if that was never set back. At every moment every key owes at least what it owes in the
   unlimited table. So the unlimited table would have admitted all of it, and the envelope holds for every key.

   Changes of shape while a bucket is evicted are not part of this. *)

Require Import ZArith Lia List Bool.
From Headgate Require Import Arithmetic Bucket.
Import ListNotations.
Open Scope Z_scope.

(* State.FullAt. *)
Definition full_at (p : shape) (s : state) : Z := stamp s + ceil_div (debt s) (n p).

Theorem a_bucket_is_full_from_full_at_on : forall p s t, valid p -> 0 < debt s -> stamp s <= t -> (owed p s t = 0 <-> full_at p s <= t).
Proof.
  intros p s t Hv Hd Ht. unfold full_at, owed. replace (Z.max 0 (t - stamp s)) with (t - stamp s) by lia.
  pose proof (ceil_div_is_the_least_that_suffices (debt s) (n p) (t - stamp s) (proj1 Hv)). split; [intro|intro]; [|nia].
  assert (ceil_div (debt s) (n p) <= t - stamp s) by (apply H; nia). lia.
Qed.

Section Table.

Variable key : Type.
Variable same_key : forall a b : key, {a = b} + {a <> b}.
Variable shape_of : key -> shape.

Hypothesis shapes_are_valid : forall k, valid (shape_of k).

(* A slot holds a bucket, and says whether it is parked. The memory reads a time for every key. *)
Record table := Table { slots : key -> option (state * bool); memory : key -> Z }.

Definition set (slots : key -> option (state * bool)) (k : key) (s : option (state * bool)) : key -> option (state * bool) :=
  fun k' => if same_key k k' then s else slots k'.

(* What drains from now until the time that is read: traces.inherit. *)
Definition remembered (tb : table) (k : key) (now : Z) : Z := Z.min (B (shape_of k)) (n (shape_of k) * Z.max 0 (memory tb k - now)).

(* The bucket of a key as a take finds it. *)
Definition found (tb : table) (k : key) (now : Z) : state :=
  match slots tb k with
  | Some (s, _) => s
  | None => State (remembered tb k now) now
  end.

Definition effective_debt (tb : table) (k : key) (now : Z) : Z := owed (shape_of k) (found tb k now) now.

Definition is_parked (tb : table) (k : key) : bool := match slots tb k with Some (_, p) => p | None => true end.

(* What the memory reads falls only where it has passed. *)
Definition keeps (now : Z) (before after : key -> Z) : Prop := forall k, before k <= now \/ before k <= after k.

(* What may happen to the table when the clock reads now, and what was charged by it. *)
Inductive happens (tb : table) (now : Z) : table -> list (key * Z) -> Prop :=
| an_admitted_take : forall k u, 0 < u -> snd (charge (shape_of k) (found tb k now) now u) = true ->
    happens tb now (Table (set (slots tb) k (Some (fst (charge (shape_of k) (found tb k now) now u), false))) (memory tb)) [(k, u)]
| a_denied_take : happens tb now tb []
| a_parking : forall k, slots tb k = None -> happens tb now (Table (set (slots tb) k (Some (found tb k now, true))) (memory tb)) []
| an_eviction_in_debt : forall k s p after, slots tb k = Some (s, p) -> keeps now (memory tb) after -> full_at (shape_of k) s <= after k ->
    happens tb now (Table (set (slots tb) k None) after) []
| an_eviction_of_a_full_bucket : forall k s p, slots tb k = Some (s, p) -> owed (shape_of k) s now = 0 ->
    happens tb now (Table (set (slots tb) k None) (memory tb)) []
| an_eviction_of_a_parked_bucket : forall k s, slots tb k = Some (s, true) ->
    happens tb now (Table (set (slots tb) k None) (memory tb)) []
| a_change_of_memory : forall after, keeps now (memory tb) after -> happens tb now (Table (slots tb) after) [].

Definition charges_of (k : key) (charges : list (key * Z)) (clock : Z) : schedule :=
  flat_map (fun x => if same_key (fst x) k then [(clock, snd x)] else []) charges.

(* A history: the table as it came to be, what its clock reads, how far that has moved forward in all, and what was charged to each key, when. *)
Inductive history : table -> Z -> Z -> (key -> schedule) -> Prop :=
| an_empty_table : forall tb now clock, (forall k, slots tb k = None) -> history tb now clock (fun _ => [])
| something_happens : forall tb now clock log now' tb' charges, history tb now clock log -> happens tb now' tb' charges ->
    let clock' := clock + Z.max 0 (now' - now) in
    history tb' now' clock' (fun k => log k ++ charges_of k charges clock').

(** * One step *)

Definition all_sound (tb : table) : Prop := forall k s p, slots tb k = Some (s, p) -> sound (shape_of k) s.

Lemma remembered_is_sound : forall tb k now, 0 <= remembered tb k now <= B (shape_of k).
Proof.
  intros tb k now. pose proof (drained_is_not_negative (shape_of k) (memory tb k - now) (shapes_are_valid k)).
  destruct (shapes_are_valid k) as (_ & _ & HB). unfold remembered. lia.
Qed.

Lemma found_is_sound : forall tb k now, all_sound tb -> sound (shape_of k) (found tb k now).
Proof.
  intros tb k now H. unfold found. destruct (slots tb k) as [[s p]|] eqn:E; [apply (H k s p); assumption|].
  pose proof (remembered_is_sound tb k now). unfold sound; cbn [debt]. lia.
Qed.

Lemma a_newcomer_owes_what_is_remembered : forall tb k now, slots tb k = None -> effective_debt tb k now = remembered tb k now.
Proof.
  intros tb k now E. unfold effective_debt, found. rewrite E. pose proof (remembered_is_sound tb k now).
  rewrite before_the_stamp_all_is_owed; cbn [debt stamp]; lia.
Qed.

Lemma in_no_time_more_is_forgotten_than_drains : forall tb k now now',
  remembered tb k now - n (shape_of k) * Z.max 0 (now' - now) <= remembered tb k now'.
Proof. intros tb k now now'. destruct (shapes_are_valid k) as (Hn & _ & HB). unfold remembered. nia. Qed.

Lemma in_no_time_more_drains_than_drains : forall tb k now now',
  effective_debt tb k now - n (shape_of k) * Z.max 0 (now' - now) <= effective_debt tb k now'.
Proof.
  intros tb k now now'. pose proof (shapes_are_valid k) as Hv. destruct (slots tb k) as [[s p]|] eqn:E.
  - unfold effective_debt, found. rewrite E. destruct (Z.le_gt_cases now now') as [Hle|Hgt].
    + replace (Z.max 0 (now' - now)) with (now' - now) by lia. apply what_is_owed_falls_by_what_drains; assumption.
    + replace (Z.max 0 (now' - now)) with 0 by lia. pose proof (what_is_owed_never_grows (shape_of k) s now' now Hv ltac:(lia)). lia.
  - rewrite !a_newcomer_owes_what_is_remembered by assumption. apply in_no_time_more_is_forgotten_than_drains.
Qed.

Lemma eviction_forgets_nothing : forall p s now t, valid p -> sound p s -> full_at p s <= t ->
  owed p s now <= Z.min (B p) (n p * Z.max 0 (t - now)).
Proof.
  intros p s now t Hv [Hd HB] Hf. unfold full_at in Hf. pose proof (ceil_div_suffices (debt s) (n p) (proj1 Hv)) as Hc.
  pose proof (owed_is_at_most_the_debt p s now Hv Hd) as Hle. apply Z.min_glb; [lia|].
  destruct Hv as (Hn & _). unfold owed. nia.
Qed.

(* What has passed means nothing any more, so what is kept means as much as before. *)
Lemma what_is_kept_is_remembered : forall tb slots' after k now, keeps now (memory tb) after ->
  remembered tb k now <= remembered (Table slots' after) k now.
Proof.
  intros tb slots' after k now H. destruct (shapes_are_valid k) as (Hn & _ & HB). unfold remembered; cbn [memory]. destruct (H k); nia.
Qed.

Lemma set_same : forall f k s, set f k s k = s.
Proof. intros. unfold set. destruct (same_key k k); congruence. Qed.

Lemma set_other : forall f k s k', k <> k' -> set f k s k' = f k'.
Proof. intros. unfold set. destruct (same_key k k'); congruence. Qed.

Lemma soundness_is_kept : forall tb now tb' charges, all_sound tb -> happens tb now tb' charges -> all_sound tb'.
Proof.
  intros tb now tb' charges Hs H. destruct H as [k u Hu Hok | | k E | k s p after Hslot Hk Hw | k s p Hslot Hfull | k s Hslot | after Hk]; try assumption;
    intros k1 s1 p1; cbn [slots]; (destruct (same_key k k1) as [<-|Hne]; [rewrite set_same | rewrite set_other by assumption; apply Hs]);
    try discriminate; intros [= <- <-].
  - apply every_bucket_stays_between_empty_and_full; [apply shapes_are_valid | apply found_is_sound; assumption | lia].
  - apply found_is_sound; assumption.
Qed.

(* Debts after something happened, against those before it at the same time. A key owes at least x if a take finds at least that; and if it
   is parked or in no slot, so does the memory say. *)
Definition owes (tb : table) (k : key) (now x : Z) : Prop :=
  x <= effective_debt tb k now /\ (is_parked tb k = true -> x <= remembered tb k now).

Lemma one_step_keeps_debts : forall tb now tb' charges k x, all_sound tb -> 0 <= x -> happens tb now tb' charges -> owes tb k now x ->
  (forall t, charges_of k charges t = []) /\ owes tb' k now x \/
  exists u, 0 < u /\ (forall t, charges_of k charges t = [(t, u)]) /\ x + u <= B (shape_of k) /\ owes tb' k now (x + u).
Proof.
  intros tb now tb' charges k x Hs Hx H [Ho Hp].
  destruct H as [k0 u Hu Hok | | k0 E | k0 s p after Hslot Hk Hw | k0 s p Hslot Hfull | k0 s Hslot | after Hk].
  - destruct (same_key k0 k) as [<-|Hne].
    + right. exists u. split; [assumption|]. split; [intro t; unfold charges_of; cbn; destruct (same_key k0 k0); [reflexivity|congruence]|].
      pose proof (a_charge_is_owed_at_its_stamp (shape_of k0) (found tb k0 now) now u (shapes_are_valid k0) ltac:(lia)) as Hc.
      destruct (charge_cases (shape_of k0) (found tb k0 now) now u) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R in *; cbn [fst snd] in *; [lia| |discriminate].
      unfold effective_debt in Ho. split; [lia|]. split; [|unfold is_parked; cbn [slots]; rewrite set_same; discriminate].
      unfold effective_debt. unfold found at 1; cbn [slots]. rewrite set_same.
      cbn [fst]. enough (owed (shape_of k0) (charged (shape_of k0) (found tb k0 now) now u) now = owed (shape_of k0) (found tb k0 now) now + u) by lia.
      rewrite <- Hc, <- owed_at_the_later_of_stamp_and_now. cbn [charged stamp]. f_equal. lia.
    + left. split; [intro t; unfold charges_of; cbn; destruct (same_key k0 k); [congruence|reflexivity]|].
      unfold owes, effective_debt, found, is_parked in *; cbn [slots]. rewrite set_other by assumption. split; assumption.
  - left. split; [reflexivity|split; assumption].
  - left. split; [reflexivity|]. destruct (same_key k0 k) as [<-|Hne].
    + unfold owes, is_parked, effective_debt, found; cbn [slots]. rewrite set_same. unfold is_parked in Hp. rewrite E in Hp.
      unfold effective_debt in Ho. split; [exact Ho|intros _; apply Hp; reflexivity].
    + unfold owes, effective_debt, found, is_parked in *; cbn [slots]. rewrite set_other by assumption. split; assumption.
  - left. split; [reflexivity|]. destruct (same_key k0 k) as [<-|Hne].
    + assert (Hr : x <= remembered (Table (set (slots tb) k0 None) after) k0 now).
      { unfold effective_debt, found in Ho. rewrite Hslot in Ho. unfold remembered; cbn [memory].
        pose proof (eviction_forgets_nothing (shape_of k0) s now (after k0) (shapes_are_valid k0) (Hs k0 s p Hslot) Hw). lia. }
      split; [rewrite a_newcomer_owes_what_is_remembered by (cbn [slots]; apply set_same); assumption|intros _; assumption].
    + pose proof (what_is_kept_is_remembered tb (set (slots tb) k0 None) after k now Hk) as Hr.
      destruct (slots tb k) as [[s1 p1]|] eqn:E.
      * unfold owes, effective_debt, found, is_parked in *; cbn [slots]. rewrite set_other by assumption. rewrite E in *.
        split; [assumption|intro Q; specialize (Hp Q); lia].
      * assert (Hn : slots (Table (set (slots tb) k0 None) after) k = None) by (cbn [slots]; rewrite set_other; assumption).
        unfold owes. rewrite (a_newcomer_owes_what_is_remembered _ _ _ Hn). rewrite a_newcomer_owes_what_is_remembered in Ho by assumption.
        split; [lia|intros _; lia].
  - left. split; [reflexivity|]. destruct (same_key k0 k) as [<-|Hne].
    + unfold effective_debt, found in Ho. rewrite Hslot, Hfull in Ho.
      pose proof (remembered_is_sound (Table (set (slots tb) k0 None) (memory tb)) k0 now).
      split; [rewrite a_newcomer_owes_what_is_remembered by (cbn [slots]; apply set_same); lia|intros _; lia].
    + unfold owes, effective_debt, found, is_parked in *; cbn [slots]. rewrite set_other by assumption. split; assumption.
  - left. split; [reflexivity|]. destruct (same_key k0 k) as [<-|Hne].
    + unfold is_parked in Hp. rewrite Hslot in Hp. specialize (Hp eq_refl).
      split; [rewrite a_newcomer_owes_what_is_remembered by (cbn [slots]; apply set_same); exact Hp|intros _; exact Hp].
    + unfold owes, effective_debt, found, is_parked in *; cbn [slots]. rewrite set_other by assumption. split; assumption.
  - left. split; [reflexivity|]. pose proof (what_is_kept_is_remembered tb (slots tb) after k now Hk) as Hr.
    destruct (slots tb k) as [[s1 p1]|] eqn:E.
    + unfold owes, effective_debt, found, is_parked in *; cbn [slots]. rewrite E in *. split; [assumption|intro Q; specialize (Hp Q); lia].
    + assert (Hn : slots (Table (slots tb) after) k = None) by assumption.
      unfold owes. rewrite (a_newcomer_owes_what_is_remembered _ _ _ Hn). rewrite a_newcomer_owes_what_is_remembered in Ho by assumption.
      split; [lia|intros _; lia].
Qed.

(** * The whole history *)

(* The bucket of a key in the table that has room for all, after what was charged to it. *)
Definition unlimited (k : key) (start : Z) (log : schedule) : state := finally (shape_of k) (State 0 start) log.

Lemma admits_all_and_one_more : forall l p s t u, admits_all p s l -> snd (charge p (finally p s l) t u) = true ->
  admits_all p s (l ++ [(t, u)]) /\ finally p s (l ++ [(t, u)]) = fst (charge p (finally p s l) t u).
Proof.
  induction l as [|[t' u'] l IH]; intros p s t u H Hok; cbn [app admits_all finally] in *; [auto|].
  destruct H as [H1 H2]. destruct (IH p _ t u H2 Hok) as [I1 I2]. auto.
Qed.

Lemma forward_and_one_more : forall l t0 t u, forward t0 l -> (forall x, In x l -> fst x <= t) -> t0 <= t -> forward t0 (l ++ [(t, u)]).
Proof.
  induction l as [|[t' u'] l IH]; intros t0 t u H Hin H0; cbn [app forward] in *; [auto|].
  destruct H as [H1 H2]. split; [assumption|]. apply IH; [assumption| |apply (Hin (t', u')); left; reflexivity].
  intros x Hx. apply Hin. right. assumption.
Qed.

(* What is known of one key: the unlimited table admits its log, and then owes at most what it owes here. *)
Definition holds (tb : table) (now clock start : Z) (k : key) (log : schedule) : Prop :=
  let u := unlimited k start log in
  costs log /\ forward start log /\ (forall x, In x log -> fst x <= clock) /\ sound (shape_of k) u /\ stamp u <= clock /\
  admits_all (shape_of k) (State 0 start) log /\ owes tb k now (owed (shape_of k) u clock).

Lemma the_beginning_holds : forall tb now clock k, (forall k, slots tb k = None) -> holds tb now clock clock k [].
Proof.
  intros tb now clock k E. unfold holds, unlimited; cbv zeta; cbn [finally admits_all forward stamp].
  destruct (shapes_are_valid k) as (_ & _ & HB).
  split; [constructor|]. split; [exact I|]. split; [intros ? []|]. split; [unfold sound; cbn [debt]; lia|].
  split; [lia|]. split; [exact I|].
  rewrite before_the_stamp_all_is_owed by (cbn; lia). cbn [debt]. pose proof (remembered_is_sound tb k now).
  split; [apply owed_is_not_negative|intros _; lia].
Qed.

Lemma a_step_holds : forall tb now clock start k log now' tb' charges, start <= clock -> all_sound tb ->
  holds tb now clock start k log -> happens tb now' tb' charges ->
  let clock' := clock + Z.max 0 (now' - now) in
  holds tb' now' clock' start k (log ++ charges_of k charges clock').
Proof.
  intros tb now clock start k log now' tb' charges Hstart Hs (Hc & Hf & Hin & Hsu & Hst & Had & Hle) Hap clock'.
  pose proof (shapes_are_valid k) as Hv. set (u := unlimited k start log) in *.
  pose proof (in_no_time_more_drains_than_drains tb k now now') as Hdrain.
  pose proof (in_no_time_more_is_forgotten_than_drains tb k now now') as Hforgot.
  assert (Hthen : owes tb k now' (owed (shape_of k) u clock')).
  { rewrite (what_is_owed_falls_exactly_from_the_stamp_on _ u clock clock') by (assumption || lia).
    pose proof (owed_is_not_negative (shape_of k) (found tb k now') now'). pose proof (remembered_is_sound tb k now').
    replace (clock' - clock) with (Z.max 0 (now' - now)) by lia. destruct Hle as [Ho Hp].
    split; [unfold effective_debt in *; lia|intro Q; specialize (Hp Q); lia]. }
  destruct (one_step_keeps_debts tb now' tb' charges k _ Hs (owed_is_not_negative (shape_of k) u clock') Hap Hthen)
    as [[E Hkeep]|(c & Hpos & E & Hroom & Hdebt)]; rewrite E.
  - rewrite app_nil_r. unfold holds; cbv zeta. fold u.
    split; [assumption|]. split; [assumption|]. split; [intros x Hx; specialize (Hin x Hx); lia|].
    split; [assumption|]. split; [lia|]. split; assumption.
  - assert (Hok : snd (charge (shape_of k) u clock' c) = true) by (apply charge_admits_what_fits; (assumption || lia)).
    destruct (admits_all_and_one_more log (shape_of k) (State 0 start) clock' c Had Hok) as [A1 A2]. fold (unlimited k start log) in A2. fold u in A2.
    unfold holds, unlimited; cbv zeta. rewrite A2.
    split; [apply Forall_app; split; [assumption|constructor; [cbn; lia|constructor]]|].
    split; [apply forward_and_one_more; [assumption|intros x Hx; specialize (Hin x Hx); lia|lia]|].
    split; [intros x Hx; apply in_app_or in Hx; destruct Hx as [Hx|[<-|[]]]; [specialize (Hin x Hx); lia|cbn; lia]|].
    split; [apply every_bucket_stays_between_empty_and_full; (assumption || lia)|].
    destruct (charge_cases (shape_of k) u clock' c) as [[Z0 R]|[[Z0 [F R]]|[Z0 [F R]]]]; rewrite R in *; cbn [fst snd] in *; [lia| |discriminate].
    split; [cbn [charged stamp]; lia|]. split; [assumption|].
    pose proof (a_charge_is_owed_at_its_stamp (shape_of k) u clock' c Hv ltac:(lia)) as Ho.
    replace (Z.max (stamp u) clock') with clock' in Ho by lia. rewrite Ho. assumption.
Qed.

Lemma a_history_holds : forall tb now clock log, history tb now clock log ->
  exists start, start <= clock /\ all_sound tb /\ forall k, holds tb now clock start k (log k).
Proof.
  intros tb now clock log H. induction H as [tb now clock Hempty | tb now clock log now' tb' charges Hist (start & Hstart & Hs & IH) Hap clock'].
  - exists clock. split; [lia|]. split; [intros k s p; rewrite Hempty; discriminate|]. intro k. apply the_beginning_holds. assumption.
  - exists start. split; [lia|]. split; [apply (soundness_is_kept tb now' tb' charges); assumption|].
    intro k. apply (a_step_holds tb now); auto.
Qed.

(* Whatever was evicted, and whenever: every key owes at least what it owes in a table that evicts nothing and was charged with the same. *)
Theorem every_key_owes_at_least_what_it_owes_in_an_unlimited_table : forall tb now clock log, history tb now clock log ->
  exists start, forall k, admits_all (shape_of k) (State 0 start) (log k) /\
    owed (shape_of k) (unlimited k start (log k)) clock <= effective_debt tb k now.
Proof.
  intros tb now clock log H. destruct (a_history_holds tb now clock log H) as (start & _ & _ & Hk). exists start. intro k.
  destruct (Hk k) as (_ & _ & _ & _ & _ & H1 & H2 & _). auto.
Qed.

(* So eviction grants nothing: in any interval every key is admitted at most its burst and what drains in that interval. *)
Theorem the_envelope_holds_for_every_key_however_buckets_are_evicted : forall tb now clock log k lo hi, history tb now clock log -> lo <= hi ->
  total lo hi (log k) <= B (shape_of k) + n (shape_of k) * (hi - lo).
Proof.
  intros tb now clock log k lo hi H Hi. destruct (a_history_holds tb now clock log H) as (start & _ & _ & Hk).
  destruct (Hk k) as (Hc & Hf & _ & _ & _ & Had & _). destruct (shapes_are_valid k) as (_ & _ & HB).
  apply (what_one_bucket_admits_obeys_the_envelope (shape_of k) (State 0 start)); try assumption; [apply shapes_are_valid|].
  unfold sound; cbn [debt]. lia.
Qed.

(* The same where the clock is not set back: then the times are its own. *)
Inductive steady_history : table -> Z -> (key -> schedule) -> Prop :=
| a_steady_beginning : forall tb now, (forall k, slots tb k = None) -> steady_history tb now (fun _ => [])
| a_steady_step : forall tb now log now' tb' charges, steady_history tb now log -> now <= now' -> happens tb now' tb' charges ->
    steady_history tb' now' (fun k => log k ++ charges_of k charges now').

Theorem with_a_steady_clock_the_interval_is_one_of_the_clock : forall tb now log k lo hi, steady_history tb now log -> lo <= hi ->
  total lo hi (log k) <= B (shape_of k) + n (shape_of k) * (hi - lo).
Proof.
  intros tb now log k lo hi H Hi. apply (the_envelope_holds_for_every_key_however_buckets_are_evicted tb now now); [|assumption].
  clear Hi. induction H as [tb now Hempty | tb now log now' tb' charges Hist IH Hle Hap]; [constructor; assumption|].
  pose proof (something_happens tb now now log now' tb' charges IH Hap) as H. cbv zeta in H.
  replace (now + Z.max 0 (now' - now)) with now' in H by lia. exact H.
Qed.


(* Parking, for the one who is parked: it owes what the answer said, at every time from then on, so that the wait it was told is true as
   long as it keeps its slot (Bucket.v, retry_after_is_exact). *)
Theorem a_parked_bucket_owes_what_was_found : forall tb k now later, slots tb k = None -> now <= later ->
  effective_debt (Table (set (slots tb) k (Some (found tb k now, true))) (memory tb)) k later = owed (shape_of k) (found tb k now) later.
Proof. intros. unfold effective_debt. unfold found at 1; cbn [slots]. rewrite set_same. reflexivity. Qed.

(* And it is none the worse for it: had it not been parked, it would owe at least as much, as what is read does not fall but when it has passed. *)
Theorem parking_makes_nobody_wait_longer : forall tb k now later, slots tb k = None -> now <= later ->
  owed (shape_of k) (found tb k now) later <= effective_debt tb k later.
Proof.
  intros tb k now later E Hl. rewrite a_newcomer_owes_what_is_remembered by assumption. unfold found. rewrite E.
  destruct (shapes_are_valid k) as (Hn & _ & HB). unfold owed, remembered; cbn [debt stamp]. nia.
Qed.

End Table.

(* The rules are not empty: a bucket of 10 that was emptied at 0 and evicted at once still owes 5 at 5. *)
Example an_evicted_bucket_owes_what_it_owed :
  let same := fun a b : unit => left (match a, b return a = b with tt, tt => eq_refl end) in
  let shape_of := fun _ : unit => Shape 1 1 10 in
  exists tb log, history unit same shape_of tb 0 0 log /\
    slots unit tb tt = None /\ log tt = [(0, 10)] /\ effective_debt unit shape_of tb tt 5 = 5.
Proof.
  intros same shape_of.
  pose (empty := Table unit (fun _ => None) (fun _ => 0)).
  assert (H0 : history unit same shape_of empty 0 0 (fun _ => [])) by (constructor; reflexivity).
  assert (S1 := an_admitted_take unit same shape_of empty 0 tt 10 eq_refl eq_refl).
  assert (H1 := something_happens unit same shape_of _ _ _ _ _ _ _ H0 S1).
  cbv zeta in H1. change (0 + Z.max 0 (0 - 0)) with 0 in H1.
  assert (K : keeps unit 0 (memory unit empty) (fun _ => 10)) by (intro; right; cbn; lia).
  assert (S2 := an_eviction_in_debt unit same shape_of (Table unit (set unit same (slots unit empty) tt
    (Some (fst (charge (shape_of tt) (found unit shape_of empty tt 0) 0 10), false))) (memory unit empty))
    0 tt (State 10 0) false (fun _ => 10) eq_refl K (Z.le_refl 10)).
  assert (H2 := something_happens unit same shape_of _ _ _ _ _ _ _ H1 S2).
  cbv zeta in H2. change (0 + Z.max 0 (0 - 0)) with 0 in H2.
  eexists. eexists. split; [exact H2|]. repeat split.
Qed.

(** * The memory *)

(* Keys have an identity; those with the same one are taken for one. An identity has two lines. The ledger holds at most one entry of an identity; where
   it holds none the time is one that is before all others. An entry may be spilled at any time: then both of its lines are marked with its time, or a
   later one, and so is one cell in each row of the sketch. Who looks for an identity whose lines are not both marked with a time that is still to
   come does not read the cells. *)
Section Memory.

Variables key identity line row cell : Type.
Variable same_identity : forall a b : identity, {a = b} + {a <> b}.
Variable same_line : forall a b : line, {a = b} + {a <> b}.
Variable same_cell : forall a b : cell, {a = b} + {a <> b}.

Variable identity_of : key -> identity.
Variables one other : identity -> line.
Variable hash : identity -> row -> cell.
Variable first_row : row.
Variable other_rows : list row.
Variable never : Z.

Record traces := Traces { ledger : identity -> Z; marks : line -> Z; cells : row -> cell -> Z }.

(* lanes.fullAt. *)
Definition earliest (m : traces) (i : identity) : Z :=
  fold_right (fun r t => Z.min (cells m r (hash i r)) t) (cells m first_row (hash i first_row)) other_rows.

Definition spilled (m : traces) (i : identity) : Z := Z.min (marks m (one i)) (marks m (other i)).

(* traces.fullAt. *)
Definition looked_up (m : traces) (i : identity) (now : Z) : Z :=
  if now <? spilled m i then Z.max (ledger m i) (earliest m i) else ledger m i.

(* What is read, whenever one looks. *)
Definition reads (m : traces) (k : key) : Z :=
  Z.max (ledger m (identity_of k)) (Z.min (spilled m (identity_of k)) (earliest m (identity_of k))).

Definition with_entry (l : identity -> Z) (i : identity) (t : Z) : identity -> Z := fun i' => if same_identity i i' then t else l i'.

Definition marked (m : line -> Z) (l : line) (t : Z) : line -> Z := fun l' => if same_line l l' then Z.max (m l') t else m l'.

(* lanes.raise, with what is written to each row. *)
Definition raised (c : row -> cell -> Z) (i : identity) (written : row -> Z) : row -> cell -> Z :=
  fun r c' => if same_cell (hash i r) c' then Z.max (c r c') (written r) else c r c'.

(* Spilling a time writes no earlier one anywhere. *)
Definition spill (m : traces) (i : identity) (mark : Z) (written : row -> Z) (l : identity -> Z) : traces :=
  Traces l (marked (marked (marks m) (one i) mark) (other i) mark) (raised (cells m) i written).

Inductive works (m : traces) (now : Z) : traces -> Prop :=
| an_entry : forall i t, works m now (Traces (with_entry (ledger m) i (Z.max (ledger m i) t)) (marks m) (cells m))
| a_spill_of_an_entry : forall i mark written, ledger m i <= mark -> (forall r, ledger m i <= written r) ->
    works m now (spill m i mark written (with_entry (ledger m) i never))
| a_spill_at_once : forall i mark written, works m now (spill m i mark written (ledger m))
| a_drop : forall i, ledger m i <= now -> works m now (Traces (with_entry (ledger m) i never) (marks m) (cells m))
| a_rise : forall marks' cells', (forall l, marks m l <= marks' l) -> (forall r c, cells m r c <= cells' r c) ->
    works m now (Traces (ledger m) marks' cells').

Lemma the_earliest_rises_with_its_cells : forall m m' i, (forall r, cells m r (hash i r) <= cells m' r (hash i r)) -> earliest m i <= earliest m' i.
Proof.
  intros m m' i H. unfold earliest. induction other_rows as [|r rows IH]; cbn; [apply H|]. specialize (H r). lia.
Qed.

Lemma the_earliest_is_as_late_as_all : forall m i t, (forall r, t <= cells m r (hash i r)) -> t <= earliest m i.
Proof.
  intros m i t H. unfold earliest. induction other_rows as [|r rows IH]; cbn; [apply H|]. specialize (H r). lia.
Qed.

Lemma marking_only_raises : forall f l t l', f l' <= marked f l t l'.
Proof. intros. unfold marked. destruct (same_line _ _); lia. Qed.

Lemma what_is_marked_is_marked : forall f l t, t <= marked f l t l.
Proof. intros. unfold marked. destruct (same_line _ _); [lia|congruence]. Qed.

Lemma a_spill_only_raises : forall m i mark written l j,
  spilled m j <= spilled (spill m i mark written l) j /\ earliest m j <= earliest (spill m i mark written l) j.
Proof.
  intros m i mark written l j. split.
  - unfold spilled, spill; cbn [marks].
    pose proof (marking_only_raises (marks m) (one i) mark (one j)). pose proof (marking_only_raises (marks m) (one i) mark (other j)).
    pose proof (marking_only_raises (marked (marks m) (one i) mark) (other i) mark (one j)).
    pose proof (marking_only_raises (marked (marks m) (one i) mark) (other i) mark (other j)). lia.
  - apply the_earliest_rises_with_its_cells. intro r. unfold spill; cbn [cells]. unfold raised. destruct (same_cell _ _); lia.
Qed.

Lemma what_is_spilled_is_read : forall m i mark written l t, t <= mark -> (forall r, t <= written r) ->
  t <= Z.min (spilled (spill m i mark written l) i) (earliest (spill m i mark written l) i).
Proof.
  intros m i mark written l t Hm Hw. apply Z.min_glb.
  - unfold spilled, spill; cbn [marks].
    pose proof (what_is_marked_is_marked (marks m) (one i) mark).
    pose proof (marking_only_raises (marked (marks m) (one i) mark) (other i) mark (one i)).
    pose proof (what_is_marked_is_marked (marked (marks m) (one i) mark) (other i) mark). lia.
  - apply the_earliest_is_as_late_as_all. intro r. unfold spill; cbn [cells]. unfold raised. specialize (Hw r). destruct (same_cell _ _); [lia|congruence].
Qed.

(* Whatever becomes of entries, what is read falls only where it has passed. *)
Theorem what_is_read_falls_only_when_it_has_passed : forall m now m', works m now m' -> keeps key now (reads m) (reads m').
Proof.
  intros m now m' H k. unfold reads. set (j := identity_of k).
  destruct H as [i t | i mark written Hm Hw | i mark written | i Hp | marks' cells' Hm Hc].
  - right. cbn [ledger]. unfold spilled, earliest; cbn [marks cells]. unfold with_entry. destruct (same_identity i j) as [->|_]; lia.
  - right. destruct (a_spill_only_raises m i mark written (with_entry (ledger m) i never) j) as [H1 H2].
    destruct (same_identity i j) as [<-|Hne].
    + pose proof (what_is_spilled_is_read m i mark written (with_entry (ledger m) i never) (ledger m i) Hm Hw). lia.
    + unfold spill at 1; cbn [ledger]. unfold with_entry at 1. destruct (same_identity i j); [congruence|]. lia.
  - right. destruct (a_spill_only_raises m i mark written (ledger m) j) as [H1 H2]. unfold spill at 1; cbn [ledger]. lia.
  - cbn [ledger]. unfold spilled, earliest; cbn [marks cells]. unfold with_entry. destruct (same_identity i j) as [->|_]; lia.
  - right. cbn [ledger].
    assert (H1 : spilled m j <= spilled (Traces (ledger m) marks' cells') j).
    { unfold spilled; cbn [marks]. pose proof (Hm (one j)). pose proof (Hm (other j)). lia. }
    assert (H2 : earliest m j <= earliest (Traces (ledger m) marks' cells') j) by (apply the_earliest_rises_with_its_cells; intro; apply Hc).
    lia.
Qed.

(* What was written is read, whether it became an entry or was spilled at once. *)
Theorem what_was_entered_is_read : forall m k t,
  t <= reads (Traces (with_entry (ledger m) (identity_of k) (Z.max (ledger m (identity_of k)) t)) (marks m) (cells m)) k.
Proof. intros m k t. unfold reads; cbn [ledger]. unfold with_entry. destruct (same_identity _ _); [lia|congruence]. Qed.

Theorem what_was_spilled_is_read : forall m k mark written t, t <= mark -> (forall r, t <= written r) ->
  t <= reads (spill m (identity_of k) mark written (ledger m)) k.
Proof.
  intros m k mark written t Hm Hw. unfold reads.
  pose proof (what_is_spilled_is_read m (identity_of k) mark written (ledger m) t Hm Hw). lia.
Qed.

(* Who looks up finds what is read, or a later time, or both have passed: so the debt that drains until then is no less. *)
Theorem what_is_looked_up_is_enough : forall m k now, Z.max 0 (reads m k - now) <= Z.max 0 (looked_up m (identity_of k) now - now).
Proof.
  intros m k now. unfold reads, looked_up. destruct (now <? spilled m (identity_of k)) eqn:E; [apply Z.ltb_lt in E | apply Z.ltb_ge in E]; lia.
Qed.

End Memory.

(* Rounding up to a whole number of any unit is rounding up, in particular to milliseconds. *)
Theorem rounding_up_to_a_unit_is_never_early : forall unit t, 0 < unit -> t <= ceil_div t unit * unit.
Proof. intros. apply ceil_div_suffices. assumption. Qed.
