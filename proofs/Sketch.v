(* A table of bounded size that forgets nothing.

   The table keeps the buckets of some keys. To make room it may evict any bucket at any time. One that is full leaves nothing behind. One
   that is in debt writes the time at which it would be full into a sketch: one cell in each row, found by hash, which keeps the latest time
   written to it. A key that is in no slot begins with the debt that would be full at the earliest time among its cells, one a row.

   Nothing is assumed about the hashes, not even that they spread; nor about who is evicted and when; nor about the number of rows, as long
   as there is one; nor about what is in the sketch at the beginning. Each time that is written may be rounded up, to whatever unit, in each
   row and at each writing differently, and cells may rise by themselves, as they do when the table moves the base that they count from. The bound
   with which the Go code reads a cell, the latest time ever written, is one more row here: all keys share its only cell, and it
   is not rounded. Every key may have a shape of its own.

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

Variables key row cell : Type.
Variable same_key : forall a b : key, {a = b} + {a <> b}.
Variable same_cell : forall a b : cell, {a = b} + {a <> b}.

Variable shape_of : key -> shape.
Variable hash : key -> row -> cell.
Variable first_row : row.
Variable other_rows : list row.

Hypothesis shapes_are_valid : forall k, valid (shape_of k).

Record table := Table { slots : key -> option state; cells : row -> cell -> Z }.

Definition set (slots : key -> option state) (k : key) (s : option state) : key -> option state :=
  fun k' => if same_key k k' then s else slots k'.

(* sketch.raise, with what is written to each row. *)
Definition raise (cells : row -> cell -> Z) (k : key) (written : row -> Z) : row -> cell -> Z :=
  fun r c => if same_cell (hash k r) c then Z.max (cells r c) (written r) else cells r c.

(* sketch.fullAt. *)
Definition earliest (cells : row -> cell -> Z) (k : key) : Z :=
  fold_right (fun r t => Z.min (cells r (hash k r)) t) (cells first_row (hash k first_row)) other_rows.

(* sketch.inherit. *)
Definition inherited (tb : table) (k : key) (now : Z) : state :=
  State (Z.min (B (shape_of k)) (n (shape_of k) * Z.max 0 (earliest (cells tb) k - now))) now.

(* The bucket of a key as a take finds it. *)
Definition found (tb : table) (k : key) (now : Z) : state :=
  match slots tb k with
  | Some s => s
  | None => inherited tb k now
  end.

Definition effective_debt (tb : table) (k : key) (now : Z) : Z := owed (shape_of k) (found tb k now) now.

(* What may happen to the table when the clock reads now, and what was charged by it. *)
Inductive happens (tb : table) (now : Z) : table -> list (key * Z) -> Prop :=
| an_admitted_take : forall k u, 0 < u -> snd (charge (shape_of k) (found tb k now) now u) = true ->
    happens tb now (Table (set (slots tb) k (Some (fst (charge (shape_of k) (found tb k now) now u)))) (cells tb)) [(k, u)]
| a_denied_take : happens tb now tb []
| an_eviction_in_debt : forall k s written, slots tb k = Some s -> (forall r, full_at (shape_of k) s <= written r) ->
    happens tb now (Table (set (slots tb) k None) (raise (cells tb) k written)) []
| an_eviction_of_a_full_bucket : forall k s, slots tb k = Some s -> owed (shape_of k) s now = 0 ->
    happens tb now (Table (set (slots tb) k None) (cells tb)) []
| a_rise_of_cells : forall cells', (forall r c, cells tb r c <= cells' r c) -> happens tb now (Table (slots tb) cells') [].

Definition charges_of (k : key) (charges : list (key * Z)) (clock : Z) : schedule :=
  flat_map (fun x => if same_key (fst x) k then [(clock, snd x)] else []) charges.

(* A history: the table as it came to be, what its clock reads, how far that has moved forward in all, and what was charged to each key, when. *)
Inductive history : table -> Z -> Z -> (key -> schedule) -> Prop :=
| an_empty_table : forall tb now clock, (forall k, slots tb k = None) -> history tb now clock (fun _ => [])
| something_happens : forall tb now clock log now' tb' charges, history tb now clock log -> happens tb now' tb' charges ->
    let clock' := clock + Z.max 0 (now' - now) in
    history tb' now' clock' (fun k => log k ++ charges_of k charges clock').

(** * One step *)

Lemma fold_min_le : forall cells k t rows, (forall r, t <= cells r (hash k r)) ->
  t <= fold_right (fun r m => Z.min (cells r (hash k r)) m) (cells first_row (hash k first_row)) rows.
Proof. intros cs k t rows H. induction rows as [|r rows IH]; cbn; [apply H|]. specialize (H r). lia. Qed.

Lemma what_was_written_is_never_read_earlier : forall cells k written t, (forall r, t <= written r) -> t <= earliest (raise cells k written) k.
Proof.
  intros cs k written t H. apply fold_min_le. intro r. unfold raise. destruct (same_cell _ _); [|congruence]. specialize (H r). lia.
Qed.

Lemma risen_cells_are_never_read_earlier : forall cells cells' k, (forall r c, cells r c <= cells' r c) -> earliest cells k <= earliest cells' k.
Proof.
  intros cs cs' k H. unfold earliest. induction other_rows as [|r rows IH]; cbn; [apply H|]. specialize (H r (hash k r)). lia.
Qed.

Lemma raising_only_raises : forall cells k written r c, cells r c <= raise cells k written r c.
Proof. intros. unfold raise. destruct (same_cell _ _); lia. Qed.

Definition all_sound (tb : table) : Prop := forall k s, slots tb k = Some s -> sound (shape_of k) s.

Lemma found_is_sound : forall tb k now, all_sound tb -> sound (shape_of k) (found tb k now).
Proof.
  intros tb k now H. unfold found. destruct (slots tb k) as [s|] eqn:E; [apply H; assumption|].
  pose proof (drained_is_not_negative (shape_of k) (earliest (cells tb) k - now) (shapes_are_valid k)).
  destruct (shapes_are_valid k) as (_ & _ & HB). unfold sound, inherited; cbn [debt]. lia.
Qed.

Lemma inherited_debt : forall tb k now, slots tb k = None ->
  effective_debt tb k now = Z.min (B (shape_of k)) (n (shape_of k) * Z.max 0 (earliest (cells tb) k - now)).
Proof.
  intros tb k now E. unfold effective_debt, found. rewrite E.
  pose proof (drained_is_not_negative (shape_of k) (earliest (cells tb) k - now) (shapes_are_valid k)).
  destruct (shapes_are_valid k) as (_ & _ & HB). unfold inherited. rewrite before_the_stamp_all_is_owed; cbn [debt stamp]; lia.
Qed.

Lemma in_no_time_more_drains_than_drains : forall tb k now now', all_sound tb ->
  effective_debt tb k now - n (shape_of k) * Z.max 0 (now' - now) <= effective_debt tb k now'.
Proof.
  intros tb k now now' H. pose proof (shapes_are_valid k) as Hv. destruct (slots tb k) as [s|] eqn:E.
  - unfold effective_debt, found. rewrite E. destruct (Z.le_gt_cases now now') as [Hle|Hgt].
    + replace (Z.max 0 (now' - now)) with (now' - now) by lia. apply what_is_owed_falls_by_what_drains; assumption.
    + replace (Z.max 0 (now' - now)) with 0 by lia. pose proof (what_is_owed_never_grows (shape_of k) s now' now Hv ltac:(lia)). lia.
  - rewrite !inherited_debt by assumption. destruct Hv as (Hn & _). nia.
Qed.

Lemma eviction_forgets_nothing : forall p s now t, valid p -> sound p s -> full_at p s <= t ->
  owed p s now <= Z.min (B p) (n p * Z.max 0 (t - now)).
Proof.
  intros p s now t Hv [Hd HB] Hf. unfold full_at in Hf. pose proof (ceil_div_suffices (debt s) (n p) (proj1 Hv)) as Hc.
  pose proof (owed_is_at_most_the_debt p s now Hv Hd) as Hle. apply Z.min_glb; [lia|].
  destruct Hv as (Hn & _). unfold owed. nia.
Qed.

Lemma set_same : forall f k s, set f k s k = s.
Proof. intros. unfold set. destruct (same_key k k); congruence. Qed.

Lemma set_other : forall f k s k', k <> k' -> set f k s k' = f k'.
Proof. intros. unfold set. destruct (same_key k k'); congruence. Qed.

Lemma soundness_is_kept : forall tb now tb' charges, all_sound tb -> happens tb now tb' charges -> all_sound tb'.
Proof.
  intros tb now tb' charges Hs H. destruct H as [k u Hu Hok | | k s written Hslot Hw | k s Hslot Hfull | cells' Hrise]; try assumption;
    intros k1 s1; cbn [slots]; (destruct (same_key k k1) as [<-|Hne]; [rewrite set_same | rewrite set_other by assumption; apply Hs]);
    try discriminate.
  intros [= <-]. apply every_bucket_stays_between_empty_and_full; [apply shapes_are_valid | apply found_is_sound; assumption | lia].
Qed.

(* Debts after something happened, against debts before it at the same time. *)
Lemma one_step_keeps_debts : forall tb now tb' charges k, all_sound tb -> happens tb now tb' charges ->
  (forall t, charges_of k charges t = []) /\ effective_debt tb k now <= effective_debt tb' k now \/
  exists u, 0 < u /\ (forall t, charges_of k charges t = [(t, u)]) /\ effective_debt tb k now + u <= B (shape_of k) /\
    effective_debt tb' k now = effective_debt tb k now + u.
Proof.
  intros tb now tb' charges k Hs H. destruct H as [k0 u Hu Hok | | k0 s written Hslot Hw | k0 s Hslot Hfull | cells' Hrise].
  - destruct (same_key k0 k) as [<-|Hne].
    + right. exists u. split; [assumption|]. split; [intro t; unfold charges_of; cbn; destruct (same_key k0 k0); [reflexivity|congruence]|].
      pose proof (a_charge_is_owed_at_its_stamp (shape_of k0) (found tb k0 now) now u (shapes_are_valid k0) ltac:(lia)) as Ho.
      destruct (charge_cases (shape_of k0) (found tb k0 now) now u) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R in *; cbn [fst snd] in *; [lia| |discriminate].
      split; [exact F|]. unfold effective_debt. unfold found at 1; cbn [slots]. rewrite set_same.
      rewrite <- Ho, <- owed_at_the_later_of_stamp_and_now. cbn [charged stamp]. f_equal. lia.
    + left. split; [intro t; unfold charges_of; cbn; destruct (same_key k0 k); [congruence|reflexivity]|].
      unfold effective_debt, found; cbn [slots]. rewrite set_other by assumption. apply Z.le_refl.
  - left. split; [reflexivity|lia].
  - left. split; [reflexivity|]. destruct (same_key k0 k) as [<-|Hne].
    + rewrite (inherited_debt (Table _ _)) by (cbn [slots]; apply set_same). unfold effective_debt, found. rewrite Hslot. cbn [cells].
      apply eviction_forgets_nothing; [apply shapes_are_valid|apply Hs; assumption|].
      apply what_was_written_is_never_read_earlier. assumption.
    + destruct (slots tb k) as [s1|] eqn:E.
      * unfold effective_debt, found; cbn [slots]. rewrite set_other by assumption. rewrite E. apply Z.le_refl.
      * rewrite (inherited_debt tb) by assumption. rewrite inherited_debt by (cbn [slots]; rewrite set_other by assumption; assumption). cbn [cells].
        pose proof (risen_cells_are_never_read_earlier (cells tb) (raise (cells tb) k0 written) k (fun r c => raising_only_raises _ _ _ r c)).
        destruct (shapes_are_valid k) as (Hn & _). nia.
  - left. split; [reflexivity|]. destruct (same_key k0 k) as [<-|Hne].
    + unfold effective_debt at 1, found. rewrite Hslot, Hfull. apply owed_is_not_negative.
    + unfold effective_debt, found; cbn [slots]. rewrite set_other by assumption. apply Z.le_refl.
  - left. split; [reflexivity|]. destruct (slots tb k) as [s1|] eqn:E.
    + unfold effective_debt, found; cbn [slots]. rewrite E. apply Z.le_refl.
    + rewrite (inherited_debt tb) by assumption. rewrite inherited_debt by assumption. cbn [cells].
      pose proof (risen_cells_are_never_read_earlier (cells tb) cells' k Hrise). destruct (shapes_are_valid k) as (Hn & _). nia.
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
  admits_all (shape_of k) (State 0 start) log /\ owed (shape_of k) u clock <= effective_debt tb k now.

Lemma the_beginning_holds : forall tb now clock k, holds tb now clock clock k [].
Proof.
  intros tb now clock k. unfold holds, unlimited; cbv zeta; cbn [finally admits_all forward stamp].
  destruct (shapes_are_valid k) as (_ & _ & HB).
  split; [constructor|]. split; [exact I|]. split; [intros ? []|]. split; [unfold sound; cbn [debt]; lia|].
  split; [lia|]. split; [exact I|].
  rewrite before_the_stamp_all_is_owed by (cbn; lia). apply owed_is_not_negative.
Qed.

Lemma a_step_holds : forall tb now clock start k log now' tb' charges, start <= clock -> all_sound tb ->
  holds tb now clock start k log -> happens tb now' tb' charges ->
  let clock' := clock + Z.max 0 (now' - now) in
  holds tb' now' clock' start k (log ++ charges_of k charges clock').
Proof.
  intros tb now clock start k log now' tb' charges Hstart Hs (Hc & Hf & Hin & Hsu & Hst & Had & Hle) Hap clock'.
  pose proof (shapes_are_valid k) as Hv. set (u := unlimited k start log) in *.
  pose proof (in_no_time_more_drains_than_drains tb k now now' Hs) as Hdrain.
  assert (Hthen : owed (shape_of k) u clock' <= effective_debt tb k now').
  { rewrite (what_is_owed_falls_exactly_from_the_stamp_on _ u clock clock') by (assumption || lia).
    pose proof (owed_is_not_negative (shape_of k) (found tb k now') now'). unfold effective_debt in *.
    replace (clock' - clock) with (Z.max 0 (now' - now)) by lia. lia. }
  destruct (one_step_keeps_debts tb now' tb' charges k Hs Hap) as [[E Hkeep]|(c & Hpos & E & Hroom & Hdebt)]; rewrite E.
  - rewrite app_nil_r. unfold holds; cbv zeta. fold u.
    split; [assumption|]. split; [assumption|]. split; [intros x Hx; specialize (Hin x Hx); lia|].
    split; [assumption|]. split; [lia|]. split; [assumption|lia].
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
    replace (Z.max (stamp u) clock') with clock' in Ho by lia. lia.
Qed.

Lemma a_history_holds : forall tb now clock log, history tb now clock log ->
  exists start, start <= clock /\ all_sound tb /\ forall k, holds tb now clock start k (log k).
Proof.
  intros tb now clock log H. induction H as [tb now clock Hempty | tb now clock log now' tb' charges Hist (start & Hstart & Hs & IH) Hap clock'].
  - exists clock. split; [lia|]. split; [intros k s; rewrite Hempty; discriminate|]. intro k. apply the_beginning_holds.
  - exists start. split; [lia|]. split; [apply (soundness_is_kept tb now' tb' charges); assumption|].
    intro k. apply (a_step_holds tb now); auto.
Qed.

(* Whatever was evicted, and whenever: every key owes at least what it owes in a table that evicts nothing and was charged with the same. *)
Theorem every_key_owes_at_least_what_it_owes_in_an_unlimited_table : forall tb now clock log, history tb now clock log ->
  exists start, forall k, admits_all (shape_of k) (State 0 start) (log k) /\
    owed (shape_of k) (unlimited k start (log k)) clock <= effective_debt tb k now.
Proof.
  intros tb now clock log H. destruct (a_history_holds tb now clock log H) as (start & _ & _ & Hk). exists start. intro k.
  destruct (Hk k) as (_ & _ & _ & _ & _ & H1 & H2). auto.
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

End Table.

(* The rules are not empty: a bucket of 10 that was emptied at 0 and evicted at once still owes 5 at 5. *)
Example an_evicted_bucket_owes_what_it_owed :
  let same := fun a b : unit => left (match a, b return a = b with tt, tt => eq_refl end) in
  let shape_of := fun _ : unit => Shape 1 1 10 in
  let hash := fun _ _ : unit => tt in
  exists tb log, history unit unit unit same same shape_of hash tt [] tb 0 0 log /\
    slots unit unit unit tb tt = None /\ log tt = [(0, 10)] /\ effective_debt unit unit unit shape_of hash tt [] tb tt 5 = 5.
Proof.
  intros same shape_of hash.
  pose (empty := Table unit unit unit (fun _ => None) (fun _ _ => 0)).
  assert (H0 : history unit unit unit same same shape_of hash tt [] empty 0 0 (fun _ => [])) by (constructor; reflexivity).
  assert (S1 := an_admitted_take unit unit unit same same shape_of hash tt [] empty 0 tt 10 eq_refl eq_refl).
  assert (H1 := something_happens unit unit unit same same shape_of hash tt [] _ _ _ _ _ _ _ H0 S1).
  cbv zeta in H1. change (0 + Z.max 0 (0 - 0)) with 0 in H1.
  assert (S2 := an_eviction_in_debt unit unit unit same same shape_of hash tt [] (Table unit unit unit (set unit same (slots unit unit unit empty) tt
    (Some (fst (charge (shape_of tt) (found unit unit unit shape_of hash tt [] empty tt 0) 0 10)))) (cells unit unit unit empty))
    0 tt (State 10 0) (fun _ => 10) eq_refl (fun _ => Z.le_refl 10)).
  assert (H2 := something_happens unit unit unit same same shape_of hash tt [] _ _ _ _ _ _ _ H1 S2).
  cbv zeta in H2. change (0 + Z.max 0 (0 - 0)) with 0 in H2.
  eexists. eexists. split; [exact H2|]. repeat split.
Qed.

(* Rounding up to a whole number of any unit is rounding up, in particular to milliseconds. *)
Theorem rounding_up_to_a_unit_is_never_early : forall unit t, 0 < unit -> t <= ceil_div t unit * unit.
Proof. intros. apply ceil_div_suffices. assumption. Qed.
