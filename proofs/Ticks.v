(* Buckets with coarse ticks, and buckets as the Go code computes them.

   Where a large burst of fine units would leave 63 bits, a shape drains n units not every nanosecond but every tick of 1,000 or 1,000,000
   of them. The debt then shrinks by whole ticks only, the stamp stays on the last of them, and what has drained since, in parts of a tick, is
   credited when a decision is made. The functions here follow the Go code step by step, for any tick. Extract.v makes the
   oracle of them that the Go code is compared with.

   With ticks of a nanosecond they are those of the other files, so all that is proven there holds for them. With coarser ticks they are related
   to the same limit in finer units: units divided by the tick, a bucket of the other files with n, P*tick and B*tick. While
   the clock is not set back all answers are the same. When it is, a coarse bucket may be the stricter of the two by what drains in a tick; and
   whatever it does, the envelope holds. *)

Require Import ZArith Lia List Bool.
From Headgate Require Import Arithmetic Bucket Reconfigure Several Refund Sketch.
Import ListNotations.
Open Scope Z_scope.

Record ticked := Ticked { per_tick : shape; tick : Z }.

Definition well_ticked (q : ticked) : Prop := valid (per_tick q) /\ 0 < tick q.

(* State.drain: the state after whole ticks, and the credit. *)
Definition elapse (q : ticked) (s : state) (now : Z) : state * Z :=
  let e := now - stamp s in
  if e <=? 0 then (s, 0)
  else if debt s * tick q <=? e * n (per_tick q) then (State 0 now, 0)
  else (State (debt s - e / tick q * n (per_tick q)) (stamp s + e / tick q * tick q), e mod tick q * n (per_tick q) / tick q).

Definition charge_ticked (q : ticked) (s : state) (now u : Z) : state * bool :=
  if u =? 0 then (s, true)
  else let (d, credit) := elapse q s now in
    if debt d - credit <=? B (per_tick q) - u then (State (debt d + u) (stamp d), true) else (s, false).

(* State.until, where d is the state after whole ticks. *)
Definition until_ticked (q : ticked) (d : state) (now u : Z) : Z :=
  if u <=? 0 then 0 else Z.max 0 (ceil_div (u * tick q) (n (per_tick q)) + (stamp d - now)).

(* The same with a longest time, here that of a time.Duration. *)
Definition longest : Z := 2 ^ 63 - 1.

Definition until_or_longest (q : ticked) (d : state) (now u : Z) : Z :=
  if u <=? 0 then 0
  else let wait := Z.min longest (ceil_div (u * tick q) (n (per_tick q))) in
    if stamp d <=? now then Z.max 0 (wait - (now - stamp d)) else Z.min longest (wait + Z.min longest (stamp d - now)).

Definition report_ticked (wait : ticked -> state -> Z -> Z -> Z) (q : ticked) (s : state) (now u : Z) (ok : bool) : answer :=
  let hopeless := negb ok && ((u <? 0) || (B (per_tick q) <? u)) in
  let (d, credit) := elapse q s now in
  Answer ok (Z.max 0 (B (per_tick q) - debt d + credit) / P (per_tick q))
    (if ok || hopeless then 0 else wait q d now (debt d + u - B (per_tick q)))
    (wait q d now (debt d)) hopeless.

Definition ask (q : ticked) (s : state) (now cost : Z) : state * bool :=
  let u := weigh (per_tick q) cost in
  if u <? 0 then (s, false) else charge_ticked q s now u.

Definition take_ticked (wait : ticked -> state -> Z -> Z -> Z) (q : ticked) (s : state) (now cost : Z) : state * answer :=
  let (s', ok) := ask q s now cost in (s', report_ticked wait q s' now (weigh (per_tick q) cost) ok).

Definition convert_ticked (old new : ticked) (s : state) (change : Z) : state :=
  let (d, credit) := elapse old s change in
  State (Z.min (ceil_div ((debt d - credit) * P (per_tick new)) (P (per_tick old))) (B (per_tick new))) (Z.max (stamp s) change).

(* Held.Follow, one step, where it is known only until known which limits held. *)
Definition convert_held_ticked (old new : ticked) (s : state) (known change : Z) : state :=
  let (d, credit) := elapse old s known in
  State (Z.min (ceil_div ((debt d - credit) * P (per_tick new)) (P (per_tick old))) (B (per_tick new))) (Z.max (stamp s) change).

Definition refund_ticked (q : ticked) (s : state) (now u taken : Z) : state :=
  let (d, _) := elapse q s now in
  let latest := Z.max (stamp s) now in
  let left := if latest <=? taken then u else u - Z.min u ((latest - taken) * n (per_tick q) / tick q) - (if 1 <? tick q then 1 else 0) in
  State (Z.max 0 (debt d - Z.max 0 left)) (stamp d).

(* State.FullAt, with the latest time of an int64. *)
Definition full_at_or_latest (q : ticked) (s : state) : Z :=
  let wait := if debt s <=? 0 then 0 else Z.min longest (ceil_div (debt s * tick q) (n (per_tick q))) in
  Z.min longest (stamp s + wait).

(* One decision over several buckets: what each of them holds, and what is asked of it. *)
Definition ask_all (now : Z) : list (ticked * state * Z) -> list state * bool :=
  all_or_nothing (ticked * state * Z) (fun x => snd (fst x)) (fun x => ask (fst (fst x)) (snd (fst x)) now (snd x)).

(** * Ticks of a nanosecond *)

Lemma elapse_by_one : forall p s now, valid p -> 0 <= debt s -> elapse (Ticked p 1) s now = (State (owed p s now) (Z.max (stamp s) now), 0).
Proof.
  intros p s now Hv Hd. unfold elapse, owed; cbn [tick per_tick]. destruct (_ <=? 0) eqn:E; [apply Z.leb_le in E|apply Z.leb_gt in E].
  - replace (Z.max 0 (now - stamp s)) with 0 by lia. replace (Z.max (stamp s) now) with (stamp s) by lia.
    rewrite Z.mul_0_r, Z.sub_0_r, Z.max_r by assumption. destruct s; reflexivity.
  - replace (Z.max 0 (now - stamp s)) with (now - stamp s) by lia. rewrite Z.mul_1_r, Z.div_1_r, Z.mod_1_r.
    replace (Z.max (stamp s) now) with now by lia.
    destruct (_ <=? _) eqn:F; [apply Z.leb_le in F|apply Z.leb_gt in F]; f_equal; f_equal; lia.
Qed.

Theorem ticks_of_a_nanosecond_charge_as_proven : forall p s now u, valid p -> 0 <= debt s ->
  charge_ticked (Ticked p 1) s now u = charge p s now u.
Proof.
  intros p s now u Hv Hd. unfold charge_ticked, charge. destruct (u =? 0); [reflexivity|]. rewrite elapse_by_one by assumption.
  cbn [debt stamp per_tick]. unfold fits, charged.
  destruct (_ <=? _) eqn:E; destruct (owed p s now + u <=? B p) eqn:F; rewrite ?Z.leb_le, ?Z.leb_gt in *; try lia; reflexivity.
Qed.

Theorem ticks_of_a_nanosecond_report_as_proven : forall p s now u ok, valid p -> 0 <= debt s ->
  report_ticked until_ticked (Ticked p 1) s now u ok = report p s now u ok.
Proof.
  intros p s now u ok Hv Hd. unfold report_ticked, report. rewrite elapse_by_one by assumption. cbn [debt stamp per_tick].
  assert (W : forall x, until_ticked (Ticked p 1) (State (owed p s now) (Z.max (stamp s) now)) now x = until p s now x).
  { intro x. unfold until_ticked, until; cbn [tick per_tick stamp]. destruct (x <=? 0) eqn:E; [reflexivity|apply Z.leb_gt in E].
    rewrite Z.mul_1_r. pose proof (ceil_div_positive x (n p) (proj1 Hv) E). lia. }
  rewrite !W, Z.add_0_r. reflexivity.
Qed.

Theorem ticks_of_a_nanosecond_take_as_proven : forall p s now cost, valid p -> sound p s ->
  take_ticked until_ticked (Ticked p 1) s now cost = take p s now cost.
Proof.
  intros p s now cost Hv Hs. unfold take_ticked, ask, take; cbn [per_tick].
  destruct (weigh p cost <? 0) eqn:E; [|apply Z.ltb_ge in E; rewrite ticks_of_a_nanosecond_charge_as_proven by (assumption || apply Hs);
    pose proof (every_bucket_stays_between_empty_and_full p s now (weigh p cost) Hv Hs E) as Hs'; destruct (charge p s now (weigh p cost)) as [s' ok]; cbn [fst] in Hs'];
    rewrite ticks_of_a_nanosecond_report_as_proven by (assumption || apply Hs || apply Hs'); reflexivity.
Qed.

Theorem ticks_of_a_nanosecond_convert_as_proven : forall old new s change, valid old -> 0 <= debt s ->
  convert_ticked (Ticked old 1) (Ticked new 1) s change = convert old new s change.
Proof.
  intros old new s change Hv Hd. unfold convert_ticked. rewrite elapse_by_one by assumption. cbn [debt per_tick]. rewrite Z.sub_0_r. reflexivity.
Qed.

Theorem ticks_of_a_nanosecond_convert_as_proven_after_what_is_unknown : forall old new s known change, valid old -> 0 <= debt s ->
  convert_held_ticked (Ticked old 1) (Ticked new 1) s known change = convert_held old new s known change.
Proof.
  intros old new s known change Hv Hd. unfold convert_held_ticked. rewrite elapse_by_one by assumption. cbn [debt per_tick].
  rewrite Z.sub_0_r. reflexivity.
Qed.

Theorem ticks_of_a_nanosecond_refund_as_proven : forall p s now u taken, valid p -> 0 <= debt s -> 0 <= u ->
  refund_ticked (Ticked p 1) s now u taken = refund p s now u taken.
Proof.
  intros p s now u taken Hv Hd Hu. unfold refund_ticked, refund, give_back. rewrite elapse_by_one by assumption. cbn [debt stamp per_tick tick].
  rewrite Z.div_1_r. change (1 <? 1) with false. cbn iota. f_equal. f_equal. f_equal.
  destruct (_ <=? taken) eqn:E; [apply Z.leb_le in E|apply Z.leb_gt in E].
  - replace (Z.max 0 (Z.max (stamp s) now - taken)) with 0 by lia. lia.
  - replace (Z.max 0 (Z.max (stamp s) now - taken)) with (Z.max (stamp s) now - taken) by lia. lia.
Qed.

Theorem ticks_of_a_nanosecond_are_full_when_proven : forall p s, valid p -> 0 <= debt s <= longest ->
  full_at_or_latest (Ticked p 1) s = Z.min longest (full_at p s).
Proof.
  intros p s (Hn & _ & _) Hd. unfold full_at_or_latest, full_at; cbn [tick per_tick]. rewrite Z.mul_1_r.
  destruct (_ <=? 0) eqn:E; [apply Z.leb_le in E|apply Z.leb_gt in E].
  - replace (debt s) with 0 by lia. unfold ceil_div. rewrite Z.div_small by lia. reflexivity.
  - assert (ceil_div (debt s) (n p) <= longest) by (apply ceil_div_is_the_least_that_suffices; [assumption|nia]). lia.
Qed.

Theorem times_that_fit_are_told_as_they_are : forall q d now u, well_ticked q ->
  ceil_div (u * tick q) (n (per_tick q)) <= longest -> stamp d - now <= longest -> until_ticked q d now u <= longest ->
  until_or_longest q d now u = until_ticked q d now u.
Proof.
  intros q d now u [Hv Ht] H1 H2 H3. unfold until_or_longest, until_ticked in *. destruct (u <=? 0) eqn:E; [reflexivity|apply Z.leb_gt in E].
  pose proof (ceil_div_positive (u * tick q) (n (per_tick q)) (proj1 Hv) ltac:(nia)).
  rewrite (Z.min_r longest (ceil_div _ _)) by lia. destruct (_ <=? now) eqn:F; [apply Z.leb_le in F|apply Z.leb_gt in F]; lia.
Qed.

(** * Coarse ticks *)

(* The same limit, and the same state, in units divided by the tick. *)
Definition finer (q : ticked) : shape := Shape (n (per_tick q)) (P (per_tick q) * tick q) (B (per_tick q) * tick q).
Definition in_finer_units (q : ticked) (s : state) : state := State (debt s * tick q) (stamp s).

Definition owed_finer (q : ticked) (s : state) (t : Z) : Z := owed (finer q) (in_finer_units q s) t.

Lemma finer_is_valid : forall q, well_ticked q -> valid (finer q).
Proof. intros q [(Hn & HP & HB) Ht]. unfold valid, finer; cbn [n P B]. nia. Qed.

(* Whole ticks and credit together are what is owed, rounded up to a unit; and from the present on nothing has changed. *)
Lemma elapse_is_exact : forall q s now d credit, well_ticked q -> 0 <= debt s -> elapse q s now = (d, credit) ->
  0 <= debt d /\
  (exists part, 0 <= part /\ credit = part / tick q /\ owed_finer q s now = debt d * tick q - part /\
     (stamp d <= now -> part = (now - stamp d) * n (per_tick q))) /\
  stamp s <= stamp d <= Z.max (stamp s) now /\ (now < stamp d -> d = s) /\
  (forall t, Z.max (stamp s) now <= t -> owed_finer q d t = owed_finer q s t).
Proof.
  intros q s now d credit [Hv Ht] Hd. pose proof (finer_is_valid q (conj Hv Ht)) as Hf. unfold elapse.
  assert (Hn : 0 < n (per_tick q)) by apply Hv. set (m := n (per_tick q)) in *. set (T := tick q) in *.
  assert (Hdt : 0 <= debt s * T) by nia.
  assert (How : forall s0 t, 0 <= debt s0 -> stamp s0 <= t -> owed_finer q s0 t = Z.max 0 (debt s0 * T - m * (t - stamp s0))).
  { intros s0 t _ H. unfold owed_finer, owed, in_finer_units; cbn [debt stamp finer n]. fold m T.
    replace (Z.max 0 (t - stamp s0)) with (t - stamp s0) by lia. reflexivity. }
  destruct (_ <=? 0) eqn:E; [apply Z.leb_le in E|apply Z.leb_gt in E].
  - intros [= <- <-]. split; [assumption|]. split; [exists 0|split; [lia|split; [reflexivity|intros; reflexivity]]].
    split; [lia|]. split; [rewrite Z.div_0_l; lia|]. split.
    + unfold owed_finer. rewrite before_the_stamp_all_is_owed; cbn [in_finer_units debt stamp]; fold T; lia.
    + intros. replace (now - stamp s) with 0 by lia. reflexivity.
  - destruct (_ <=? _) eqn:F; [apply Z.leb_le in F|apply Z.leb_gt in F]; intros [= <- <-]; cbn [debt stamp].
    + split; [lia|]. split; [exists 0|split; [lia|split; [lia|]]].
      * split; [lia|]. split; [rewrite Z.div_0_l; lia|]. split; [rewrite How by lia; lia|lia].
      * intros t H. rewrite !How by (cbn [debt stamp]; lia). cbn [debt stamp]. nia.
    + pose proof (Z.div_mod (now - stamp s) T ltac:(lia)) as Hdm. pose proof (Z.mod_pos_bound (now - stamp s) T Ht) as Hmod.
      set (w := (now - stamp s) / T) in *. set (r := (now - stamp s) mod T) in *.
      assert (Hw : 0 <= w) by (unfold w; apply Z.div_pos; lia).
      assert (Hpos : 0 < (debt s - w * m) * T) by nia.
      assert (Hpos' : 0 < debt s - w * m) by nia.
      split; [lia|]. split; [exists (r * m)|split; [nia|split; [nia|]]].
      * split; [nia|]. split; [reflexivity|]. split; [rewrite How by lia; nia|nia].
      * intros t H. rewrite !How by (cbn [debt stamp]; nia). cbn [debt stamp]. f_equal. nia.
Qed.

Lemma at_most_by_ticks : forall a b part T, 0 < T -> 0 <= part -> (a - part / T <= b <-> a * T - part <= b * T).
Proof. intros a b part T HT Hp. pose proof (floor_div_is_the_most_that_fits part T (a - b) HT). split; intro; nia. Qed.

Theorem coarse_ticks_decide_exactly : forall q s now u, well_ticked q -> 0 <= debt s -> 0 < u ->
  (snd (charge_ticked q s now u) = true <-> owed_finer q s now + u * tick q <= B (per_tick q) * tick q).
Proof.
  intros q s now u Hq Hd Hu. unfold charge_ticked. replace (u =? 0) with false by (symmetry; apply Z.eqb_neq; lia).
  destruct (elapse q s now) as [d credit] eqn:E. destruct (elapse_is_exact q s now d credit Hq Hd E) as (H0 & (part & Hp & Hc & Ho & _) & _).
  pose proof (at_most_by_ticks (debt d) (B (per_tick q) - u) part (tick q) (proj2 Hq) Hp) as H. rewrite <- Hc in H.
  destruct (_ <=? _) eqn:F; [apply Z.leb_le in F|apply Z.leb_gt in F]; cbn [snd]; rewrite Ho; split; intro; try reflexivity; try discriminate; nia.
Qed.

Lemma a_coarse_charge : forall q s now u, well_ticked q -> 0 <= debt s -> 0 < u -> snd (charge_ticked q s now u) = true ->
  let s' := fst (charge_ticked q s now u) in
  0 <= debt s' /\ stamp s <= stamp s' <= Z.max (stamp s) now /\ owed_finer q s' now = owed_finer q s now + u * tick q /\
  forall t, Z.max (stamp s) now <= t ->
    owed_finer q s' t = Z.max 0 (owed_finer q s now + u * tick q - n (per_tick q) * (t - Z.max (stamp s) now)).
Proof.
  intros q s now u Hq Hd Hu. unfold charge_ticked. replace (u =? 0) with false by (symmetry; apply Z.eqb_neq; lia).
  destruct (elapse q s now) as [d credit] eqn:E.
  destruct (elapse_is_exact q s now d credit Hq Hd E) as (H0 & (part & Hp & Hc & Ho & Hpart) & Hst & Hback & Hlater).
  destruct (_ <=? _); cbn [fst snd]; [intros _|discriminate]. cbn [debt stamp]. destruct Hq as [[Hn _] Ht].
  split; [lia|]. split; [lia|].
  assert (Hnow : stamp d <= now \/ now < stamp d /\ d = s) by (destruct (Z.le_gt_cases (stamp d) now) as [H|H]; [left|right; split]; auto).
  assert (Howe : forall t, owed_finer q (State (debt d + u) (stamp d)) t = Z.max 0 ((debt d + u) * tick q - n (per_tick q) * Z.max 0 (t - stamp d))) by reflexivity.
  split.
  - rewrite Howe. destruct Hnow as [H|[H Heq]].
    + rewrite Ho. specialize (Hpart H). replace (Z.max 0 (now - stamp d)) with (now - stamp d) by lia.
      pose proof (owed_is_not_negative (finer q) (in_finer_units q s) now) as Hpos. fold (owed_finer q s now) in Hpos. nia.
    + replace (Z.max 0 (now - stamp d)) with 0 by lia. subst d. unfold owed_finer.
      rewrite before_the_stamp_all_is_owed by (cbn [in_finer_units debt stamp]; nia). cbn [in_finer_units debt]. nia.
  - intros t H. rewrite Howe. replace (Z.max 0 (t - stamp d)) with (t - stamp d) by lia. destruct Hnow as [Hle|[Hlt Heq]].
    + rewrite Ho. specialize (Hpart Hle). destruct (Z.le_gt_cases (stamp s) now) as [G|G].
      * replace (Z.max (stamp s) now) with now by lia. nia.
      * replace (Z.max (stamp s) now) with (stamp d) by lia. lia.
    + subst d. unfold owed_finer. rewrite before_the_stamp_all_is_owed by (cbn [in_finer_units debt stamp]; nia). cbn [in_finer_units debt].
      replace (Z.max (stamp s) now) with (stamp s) by lia. nia.
Qed.

(* A coarse bucket's answers to a whole schedule. *)
Fixpoint answers_ticked (q : ticked) (s : state) (rs : schedule) : list answer :=
  match rs with
  | [] => []
  | (now, u) :: rest =>
      let (s', ok) := charge_ticked q s now u in
      report_ticked until_ticked q s' now u ok :: answers_ticked q s' rest
  end.

Lemma ceil_div_minus_whole : forall a b w, 0 < b -> ceil_div (a - w * b) b = ceil_div a b - w.
Proof. intros a b w Hb. unfold ceil_div. replace (a - w * b + b - 1) with (a + b - 1 + (- w) * b) by lia. rewrite Z.div_add by lia. lia. Qed.

Lemma reports_are_the_same : forall q s f now u ok, well_ticked q -> 0 <= debt s -> 0 <= debt f -> stamp s <= now -> stamp f <= now ->
  owed_finer q s now = owed (finer q) f now ->
  report_ticked until_ticked q s now u ok = report (finer q) f now (u * tick q) ok.
Proof.
  intros q s f now u ok Hq Hd Hdf Hs Hf Ho. unfold report_ticked, report.
  destruct (elapse q s now) as [d credit] eqn:E.
  destruct (elapse_is_exact q s now d credit Hq Hd E) as (H0 & (part & Hp & Hc & Hod & Hpart) & Hst & _).
  specialize (Hpart ltac:(lia)). rewrite Ho in Hod.
  destruct Hq as [(Hn & HP & HB) Ht]. set (T := tick q) in *. set (m := n (per_tick q)) in *.
  assert (Hless : (u * T <? 0) = (u <? 0)) by (destruct (u <? 0) eqn:G; [apply Z.ltb_lt in G; apply Z.ltb_lt | apply Z.ltb_ge in G; apply Z.ltb_ge]; nia).
  assert (Hmore : (B (finer q) <? u * T) = (B (per_tick q) <? u)).
  { cbn [finer B]. fold T. destruct (B (per_tick q) <? u) eqn:G; [apply Z.ltb_lt in G; apply Z.ltb_lt | apply Z.ltb_ge in G; apply Z.ltb_ge]; nia. }
  rewrite Hless, Hmore.
  assert (Hw : forall x y, y = x * T - part -> until_ticked q d now x = until (finer q) f now y).
  { intros x y ->. unfold until_ticked, until. cbn [finer n]. fold T m. replace (Z.max 0 (stamp f - now)) with 0 by lia.
    rewrite Hpart, ceil_div_minus_whole by assumption.
    pose proof (ceil_div_is_the_least_that_suffices (x * T) m (now - stamp d) Hn) as Hleast. rewrite Hpart in Hp.
    destruct (x <=? 0) eqn:G1; [apply Z.leb_le in G1|apply Z.leb_gt in G1];
      (destruct (_ <=? 0) eqn:G2; [apply Z.leb_le in G2|apply Z.leb_gt in G2]).
    - reflexivity.
    - nia.
    - assert (ceil_div (x * T) m <= now - stamp d) by (apply Hleast; lia). lia.
    - assert (~ ceil_div (x * T) m <= now - stamp d) by (intro K; apply Hleast in K; lia). lia. }
  rewrite (Hw (debt d) (owed (finer q) f now)) by lia.
  unfold reset_after, retry_after. rewrite (Hw (debt d + u - B (per_tick q)) (owed (finer q) f now + u * T - B (finer q))) by (cbn [finer B]; fold T; lia).
  f_equal. unfold remaining. cbn [finer B P]. fold T. rewrite Hod, Hc.
  replace (P (per_tick q) * T) with (T * P (per_tick q)) by ring. rewrite <- Z.div_div by lia. f_equal.
  assert (Hdiv : (B (per_tick q) * T - (debt d * T - part)) / T = B (per_tick q) - debt d + part / T).
  { replace (B (per_tick q) * T - (debt d * T - part)) with (part + (B (per_tick q) - debt d) * T) by ring. rewrite Z.div_add by lia. lia. }
  destruct (Z.le_gt_cases 0 (B (per_tick q) * T - (debt d * T - part))) as [G|G].
  - rewrite (Z.max_r 0 (B (per_tick q) * T - (debt d * T - part))), Hdiv by assumption. apply Z.max_r.
    rewrite <- Hdiv. apply Z.div_pos; lia.
  - rewrite (Z.max_l 0 (B (per_tick q) * T - (debt d * T - part))) by lia. rewrite Z.div_0_l by lia. apply Z.max_l.
    rewrite <- Hdiv. assert ((B (per_tick q) * T - (debt d * T - part)) / T < 1); [apply Z.div_lt_upper_bound; lia|lia].
Qed.

Lemma in_step_with_the_finer_bucket : forall rs q s f last, well_ticked q -> 0 <= debt s -> sound (finer q) f -> stamp s <= last -> stamp f <= last ->
  (forall t, last <= t -> owed_finer q s t = owed (finer q) f t) -> costs rs -> forward last rs ->
  answers_ticked q s rs = answers (finer q) f (map (fun r => (fst r, snd r * tick q)) rs).
Proof.
  induction rs as [|[now u] rest IH]; intros q s f last Hq Hd Hsf Hs Hf Hsame Hc Hfw; [reflexivity|].
  inversion Hc as [|x l Hu Hrest]; subst; cbn [snd] in Hu. destruct Hfw as [Hnow Hfw].
  pose proof (finer_is_valid q Hq) as Hvf. pose proof (Hsame now Hnow) as Ho.
  cbn [answers_ticked map fst snd answers].
  destruct (Z.eq_dec u 0) as [->|Hne].
  - unfold charge_ticked, charge; cbn [Z.mul Z.eqb]. f_equal.
    + apply reports_are_the_same; try assumption; try lia. apply Hsf.
    + apply (IH q s f now); try assumption; try lia. intros t Ht. apply Hsame. lia.
  - pose proof (coarse_ticks_decide_exactly q s now u Hq Hd ltac:(lia)) as Hdec.
    pose proof (a_coarse_charge q s now u Hq Hd ltac:(lia)) as Hafter.
    destruct Hq as [Hv Ht0].
    assert (Hut : 0 < u * tick q) by nia.
    pose proof (every_bucket_stays_between_empty_and_full (finer q) f now (u * tick q) Hvf Hsf ltac:(lia)) as Hsf'.
    assert (Hden : snd (charge_ticked q s now u) = false -> fst (charge_ticked q s now u) = s).
    { unfold charge_ticked. destruct (u =? 0); [discriminate|]. destruct (elapse q s now) as [d0 c0]. destruct (_ <=? _); [discriminate|reflexivity]. }
    destruct (charge_ticked q s now u) as [s' ok]. cbn [fst snd] in *.
    destruct (charge_cases (finer q) f now (u * tick q)) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R in *; [lia| |]; cbn [fst] in *.
    + assert (ok = true) by (apply Hdec; rewrite Ho; exact F). subst ok. destruct (Hafter eq_refl) as (K1 & K2 & K3 & K4).
      assert (Hlater : forall t, now <= t -> owed_finer q s' t = owed (finer q) (charged (finer q) f now (u * tick q)) t).
      { intros t Ht. rewrite K4 by lia. rewrite a_charge_is_owed by (assumption || lia). rewrite Ho.
        replace (Z.max (stamp s) now) with now by lia. replace (Z.max (stamp f) now) with now by lia. reflexivity. }
      f_equal.
      * apply reports_are_the_same; try assumption; try lia; [split; assumption | apply Hsf' | cbn [charged stamp]; lia | apply Hlater; lia].
      * apply (IH q s' _ now); try assumption; try lia; [split; assumption | cbn [charged stamp]; lia].
    + assert (ok = false) by (destruct ok; [|reflexivity]; assert (owed_finer q s now + u * tick q <= B (per_tick q) * tick q) by (apply Hdec; reflexivity);
        cbn [finer B] in F; lia). subst ok. rewrite (Hden eq_refl) in *.
      f_equal.
      * apply reports_are_the_same; try assumption; try lia; [split; assumption | apply Hsf].
      * apply (IH q s f now); try assumption; try lia; [split; assumption|]. intros t Ht. apply Hsame. lia.
Qed.

(* While the clock is not set back, a coarse bucket answers in every respect like the same limit in finer units: allowed, remaining, retry, reset. *)
Theorem coarse_ticks_answer_like_fine_ones : forall q start rs, well_ticked q -> costs rs -> forward start rs ->
  answers_ticked q (State 0 start) rs = answers (finer q) (State 0 start) (map (fun r => (fst r, snd r * tick q)) rs).
Proof.
  intros q start rs Hq Hc Hf. apply (in_step_with_the_finer_bucket rs q (State 0 start) (State 0 start) start); try assumption; cbn [debt stamp]; try lia.
  - destruct (finer_is_valid q Hq) as (_ & _ & HB). unfold sound; cbn [debt]. lia.
  - intros t _. unfold owed_finer, in_finer_units; cbn [debt stamp]. rewrite Z.mul_0_l. reflexivity.
Qed.

(* What a coarse bucket admits, in finer units, and when: by a clock that stands still while the real one is set back. *)
Fixpoint ledger_ticked (q : ticked) (s : state) (last clock : Z) (rs : schedule) : schedule :=
  match rs with
  | [] => []
  | (now, u) :: rest =>
      let clock' := clock + Z.max 0 (now - last) in
      let (s', ok) := charge_ticked q s now u in
      if ok then (clock', u * tick q) :: ledger_ticked q s' now clock' rest else ledger_ticked q s' now clock' rest
  end.

Lemma a_finer_bucket_admits_as_much : forall rs q s f last clock, well_ticked q -> 0 <= debt s -> sound (finer q) f -> stamp f <= clock ->
  owed (finer q) f clock <= owed_finer q s last -> costs rs ->
  let l := ledger_ticked q s last clock rs in
  costs l /\ forward clock l /\ admits_all (finer q) f l.
Proof.
  induction rs as [|[now u] rest IH]; intros q s f last clock Hq Hd Hsf Hf Hle Hc; cbn zeta; [repeat split; constructor|].
  inversion Hc as [|x l Hu Hrest]; subst; cbn [snd] in Hu. cbn [ledger_ticked]. set (clock' := clock + Z.max 0 (now - last)).
  pose proof (finer_is_valid q Hq) as Hvf.
  assert (Hthen : owed (finer q) f clock' <= owed_finer q s now).
  { rewrite (what_is_owed_falls_exactly_from_the_stamp_on (finer q) f clock clock') by (assumption || lia).
    pose proof (owed_is_not_negative (finer q) (in_finer_units q s) now) as Hpos. fold (owed_finer q s now) in Hpos.
    destruct (Z.le_gt_cases last now) as [H|H].
    - pose proof (what_is_owed_falls_by_what_drains (finer q) (in_finer_units q s) last now Hvf H) as Hdr.
      fold (owed_finer q s last) in Hdr. fold (owed_finer q s now) in Hdr. replace (clock' - clock) with (now - last) by lia. lia.
    - pose proof (what_is_owed_never_grows (finer q) (in_finer_units q s) now last Hvf ltac:(lia)) as Hdr.
      fold (owed_finer q s last) in Hdr. fold (owed_finer q s now) in Hdr. replace (clock' - clock) with 0 by lia. lia. }
  assert (Hw : forall l, forward clock' l -> forward clock l).
  { intros [|[t c] l]; cbn [forward]; [auto|]. intros [H1 H2]. split; [lia|assumption]. }
  destruct (Z.eq_dec u 0) as [->|Hne].
  - unfold charge_ticked; cbn [Z.eqb].
    destruct (IH q s f now clock' Hq Hd Hsf ltac:(lia) Hthen Hrest) as (I1 & I2 & I3).
    split; [constructor; [cbn; lia|assumption]|]. split; [split; [lia|assumption]|].
    cbn [admits_all]. unfold charge; cbn [Z.mul Z.eqb fst snd]. split; [reflexivity|assumption].
  - pose proof (coarse_ticks_decide_exactly q s now u Hq Hd ltac:(lia)) as Hdec.
    pose proof (a_coarse_charge q s now u Hq Hd ltac:(lia)) as Hafter.
    assert (Hden : snd (charge_ticked q s now u) = false -> fst (charge_ticked q s now u) = s).
    { unfold charge_ticked. destruct (u =? 0); [discriminate|]. destruct (elapse q s now) as [d0 c0]. destruct (_ <=? _); [discriminate|reflexivity]. }
    destruct (charge_ticked q s now u) as [s' ok]; cbn [fst snd] in *. destruct ok.
    + destruct (Hafter eq_refl) as (K1 & _ & K3 & _). assert (Hroom : owed_finer q s now + u * tick q <= B (finer q)) by (apply Hdec; reflexivity).
      assert (Hut : 0 < u * tick q) by (destruct Hq; nia).
      pose proof (every_bucket_stays_between_empty_and_full (finer q) f clock' (u * tick q) Hvf Hsf ltac:(lia)) as Hsf'.
      pose proof (a_charge_is_owed_at_its_stamp (finer q) f clock' (u * tick q) Hvf ltac:(lia)) as Howe.
      replace (Z.max (stamp f) clock') with clock' in Howe by lia.
      destruct (charge_cases (finer q) f clock' (u * tick q)) as [[E R]|[[E [F R]]|[E [F R]]]]; [lia| |lia]. rewrite R in Hsf'. cbn [fst] in Hsf'.
      destruct (IH q s' (charged (finer q) f clock' (u * tick q)) now clock' Hq K1 Hsf' ltac:(cbn [charged stamp]; lia) ltac:(lia) Hrest) as (I1 & I2 & I3).
      split; [constructor; [cbn; lia|assumption]|]. split; [split; [lia|assumption]|].
      cbn [admits_all]. rewrite R. split; [reflexivity|assumption].
    + rewrite (Hden eq_refl). destruct (IH q s f now clock' Hq Hd Hsf ltac:(lia) Hthen Hrest) as (I1 & I2 & I3).
      split; [assumption|]. split; [apply Hw; assumption|assumption].
Qed.

(* In any interval of t nanoseconds at most the burst and what drains in t is admitted, whatever the clock does. Both sides are in finer units. *)
Theorem the_envelope_holds_with_coarse_ticks : forall q rs first clock lo hi, well_ticked q -> costs rs -> lo <= hi ->
  total lo hi (ledger_ticked q (State 0 first) first clock rs) <= B (per_tick q) * tick q + n (per_tick q) * (hi - lo).
Proof.
  intros q rs first clock lo hi Hq Hc Hi. pose proof (finer_is_valid q Hq) as Hv.
  assert (Hs : sound (finer q) (State 0 clock)) by (destruct Hv as (_ & _ & HB); unfold sound; cbn [debt]; lia).
  assert (Hle : owed (finer q) (State 0 clock) clock <= owed_finer q (State 0 first) first).
  { rewrite before_the_stamp_all_is_owed by (cbn; lia). apply owed_is_not_negative. }
  destruct (a_finer_bucket_admits_as_much rs q (State 0 first) (State 0 clock) first clock Hq ltac:(cbn; lia) Hs ltac:(cbn; lia) Hle Hc) as (H1 & H2 & H3).
  apply (what_one_bucket_admits_obeys_the_envelope (finer q) (State 0 clock)); assumption.
Qed.

(* A coarse bucket converts what it owes, rounded up to a unit. *)
Theorem coarse_ticks_convert_what_is_owed : forall old new s change, well_ticked old -> 0 <= debt s ->
  convert_ticked old new s change =
  State (Z.min (ceil_div (ceil_div (owed_finer old s change) (tick old) * P (per_tick new)) (P (per_tick old))) (B (per_tick new))) (Z.max (stamp s) change).
Proof.
  intros old new s change Hq Hd. unfold convert_ticked. destruct (elapse old s change) as [d credit] eqn:E.
  destruct (elapse_is_exact old s change d credit Hq Hd E) as (_ & (part & Hp & Hc & Ho & _) & _). destruct Hq as [_ Ht].
  replace (ceil_div (owed_finer old s change) (tick old)) with (debt d - credit); [reflexivity|].
  rewrite Ho, Hc. apply Z.le_antisymm.
  - pose proof (ceil_div_suffices (debt d * tick old - part) (tick old) Ht).
    apply (at_most_by_ticks (debt d) _ part (tick old)); lia.
  - apply (ceil_div_is_the_least_that_suffices _ (tick old)); [assumption|]. apply (at_most_by_ticks (debt d)); lia.
Qed.

Theorem coarse_ticks_hold_what_is_owed : forall old new s known change, well_ticked old -> 0 <= debt s ->
  convert_held_ticked old new s known change =
  State (debt (convert_ticked old new s known)) (Z.max (stamp s) change).
Proof.
  intros old new s known change _ _. unfold convert_held_ticked, convert_ticked. destruct (elapse old s known). reflexivity.
Qed.

(* With coarse ticks no refund gives back more than the same refund in finer units. *)
Theorem coarse_ticks_refund_no_more_than_fine_ones : forall q s now u taken t, well_ticked q -> 1 < tick q -> 0 <= debt s -> 0 <= u -> Z.max (stamp s) now <= t ->
  owed (finer q) (refund (finer q) (in_finer_units q s) now (u * tick q) taken) t <= owed_finer q (refund_ticked q s now u taken) t.
Proof.
  intros q s now u taken t Hq Hcoarse Hd Hu Ht. unfold refund_ticked. destruct (elapse q s now) as [d credit] eqn:E.
  destruct (elapse_is_exact q s now d credit Hq Hd E) as (H0 & (part & Hp & Hc & Ho & Hpart) & Hst & Hback & _).
  destruct Hq as [(Hn & _) Htick]. set (T := tick q) in *. set (m := n (per_tick q)) in *. set (latest := Z.max (stamp s) now) in *.
  replace (1 <? T) with true by (symmetry; apply Z.ltb_lt; lia).
  set (back := Z.max 0 (if latest <=? taken then _ else _)).
  assert (Hgive : back * T <= give_back (finer q) (u * T) (latest - taken)).
  { unfold back, give_back; cbn [finer n]. fold m. destruct (latest <=? taken) eqn:G; [apply Z.leb_le in G|apply Z.leb_gt in G].
    - replace (Z.max 0 (latest - taken)) with 0 by lia. rewrite Z.mul_0_r, (Z.max_r 0 u) by assumption. lia.
    - replace (Z.max 0 (latest - taken)) with (latest - taken) by lia.
      pose proof (Z.mul_succ_div_gt ((latest - taken) * m) T Htick).
      set (k := (latest - taken) * m / T) in *. destruct (Z.le_gt_cases u k); nia. }
  assert (Hof : owed (finer q) (in_finer_units q s) now = owed_finer q s now) by reflexivity.
  unfold refund. cbn [in_finer_units stamp]. fold latest. rewrite Hof. set (g := give_back _ _ _) in *.
  assert (HL : forall x, owed (finer q) (State x latest) t = Z.max 0 (x - m * (t - latest))).
  { intro x. unfold owed; cbn [debt stamp finer n]. fold m. replace (Z.max 0 (t - latest)) with (t - latest) by lia. reflexivity. }
  assert (HR : forall x, owed_finer q (State x (stamp d)) t = Z.max 0 (x * T - m * (t - stamp d))).
  { intro x. unfold owed_finer, owed, in_finer_units; cbn [debt stamp finer n]. fold m T. replace (Z.max 0 (t - stamp d)) with (t - stamp d) by lia. reflexivity. }
  rewrite HL, HR.
  destruct (Z.le_gt_cases (stamp d) now) as [H|H].
  - specialize (Hpart H). rewrite Ho. fold T. nia.
  - pose proof (Hback H) as Heq. rewrite Heq in H, H0 |- *. assert (Hs : latest = stamp s) by lia. rewrite Hs.
    unfold owed_finer. rewrite before_the_stamp_all_is_owed by (cbn [in_finer_units debt stamp]; nia). cbn [in_finer_units debt]. fold T. nia.
Qed.
