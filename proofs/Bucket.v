(* One bucket.

   A bucket is the debt of those who took from it. One token is P units of debt, n units drain every tick, and a take is admitted when its
   units on top of what is still owed are at most B. The state is two numbers, the debt and the time it was counted at, its stamp. A clock
   that reads less than the stamp was set back: it drains nothing, and the stamp never falls. A denied take leaves the state as it was.

   The time of a bucket is its stamp: the latest clock reading at which it admitted something. As long as the clock is not set back this is
   the clock reading of the take itself. The envelope is stated in that time, for every interval of it; two more theorems restate it for
   clocks. All shapes are those of package rate with ticks of a nanosecond; Ticks.v is about the others. *)

Require Import ZArith Lia List Bool.
From Headgate Require Import Arithmetic.
Import ListNotations.
Open Scope Z_scope.

(* rate.Shape: Drain, Unit and Capacity. *)
Record shape := Shape { n : Z; P : Z; B : Z }.

(* bucket.State: Debt and Stamp. *)
Record state := State { debt : Z; stamp : Z }.

Definition valid (p : shape) : Prop := 0 < n p /\ 0 < P p /\ 0 <= B p.
Definition sound (p : shape) (s : state) : Prop := 0 <= debt s <= B p.

(* What of the debt is left at time t. *)
Definition owed (p : shape) (s : state) (t : Z) : Z := Z.max 0 (debt s - n p * Z.max 0 (t - stamp s)).

Definition fits (p : shape) (s : state) (now units : Z) : bool := owed p s now + units <=? B p.

Definition charged (p : shape) (s : state) (now units : Z) : state :=
  State (owed p s now + units) (Z.max (stamp s) now).

(* State.Charge. *)
Definition charge (p : shape) (s : state) (now units : Z) : state * bool :=
  if units =? 0 then (s, true)
  else if fits p s now units then (charged p s now units, true)
  else (s, false).

(* The time from now until so many units of what is owed now have drained. *)
Definition until (p : shape) (s : state) (now units : Z) : Z :=
  if units <=? 0 then 0 else ceil_div units (n p) + Z.max 0 (stamp s - now).

Definition remaining (p : shape) (s : state) (now : Z) : Z := Z.max 0 (B p - owed p s now) / P p.
Definition reset_after (p : shape) (s : state) (now : Z) : Z := until p s now (owed p s now).
Definition retry_after (p : shape) (s : state) (now units : Z) : Z := until p s now (owed p s now + units - B p).

(* bucket.Outcome. *)
Record answer := Answer { allowed : bool; remains : Z; retry : Z; reset : Z; never : bool }.

(* State.Report: how the bucket stands after it was asked for units and said ok or not. *)
Definition report (p : shape) (s : state) (now units : Z) (ok : bool) : answer :=
  let hopeless := negb ok && ((units <? 0) || (B p <? units)) in
  Answer ok (remaining p s now) (if ok || hopeless then 0 else retry_after p s now units) (reset_after p s now) hopeless.

(* Shape.Units, with -1 for a cost that no bucket holds. *)
Definition weigh (p : shape) (cost : Z) : Z := if (cost <? 0) || (B p <? cost * P p) then -1 else cost * P p.

(* State.Take, of whole tokens. *)
Definition take (p : shape) (s : state) (now cost : Z) : state * answer :=
  let u := weigh p cost in
  let (s', ok) := if u <? 0 then (s, false) else charge p s now u in
  (s', report p s' now u ok).

(* A schedule is a list of clock readings and units wanted, in the order in which the bucket sees them. *)
Definition schedule := list (Z * Z).

Fixpoint finally (p : shape) (s : state) (rs : schedule) : state :=
  match rs with
  | [] => s
  | (now, u) :: rest => finally p (fst (charge p s now u)) rest
  end.

Fixpoint answers (p : shape) (s : state) (rs : schedule) : list answer :=
  match rs with
  | [] => []
  | (now, u) :: rest =>
      let (s', ok) := charge p s now u in
      report p s' now u ok :: answers p s' rest
  end.

(* What was admitted, and when, in the time of the bucket. *)
Fixpoint ledger (p : shape) (s : state) (rs : schedule) : schedule :=
  match rs with
  | [] => []
  | (now, u) :: rest =>
      let (s', ok) := charge p s now u in
      if ok then (stamp s', u) :: ledger p s' rest else ledger p s' rest
  end.

(* How much a ledger holds from lo to hi, both included. *)
Fixpoint total (lo hi : Z) (l : schedule) : Z :=
  match l with
  | [] => 0
  | (t, u) :: rest => (if (lo <=? t) && (t <=? hi) then u else 0) + total lo hi rest
  end.

Definition costs (rs : schedule) : Prop := Forall (fun r => 0 <= snd r) rs.

Fixpoint admits_all (p : shape) (s : state) (rs : schedule) : Prop :=
  match rs with
  | [] => True
  | (now, u) :: rest => snd (charge p s now u) = true /\ admits_all p (fst (charge p s now u)) rest
  end.

(* The clock never reads less than it did, nor less than t. *)
Fixpoint forward (t : Z) (rs : schedule) : Prop :=
  match rs with
  | [] => True
  | (now, _) :: rest => t <= now /\ forward now rest
  end.

(** * What time does to a debt *)

Lemma drained_is_not_negative : forall p t, valid p -> 0 <= n p * Z.max 0 t.
Proof. intros p t [Hn _]. apply product_is_not_negative; lia. Qed.

Lemma owed_is_not_negative : forall p s t, 0 <= owed p s t.
Proof. intros. unfold owed. lia. Qed.

Lemma owed_is_at_most_the_debt : forall p s t, valid p -> 0 <= debt s -> owed p s t <= debt s.
Proof. intros p s t Hv Hd. pose proof (drained_is_not_negative p (t - stamp s) Hv). unfold owed. lia. Qed.

Lemma before_the_stamp_all_is_owed : forall p s t, 0 <= debt s -> t <= stamp s -> owed p s t = debt s.
Proof. intros p s t Hd Ht. unfold owed. replace (Z.max 0 (t - stamp s)) with 0 by lia. rewrite Z.mul_0_r. lia. Qed.

Lemma owed_at_the_later_of_stamp_and_now : forall p s now, owed p s (Z.max (stamp s) now) = owed p s now.
Proof. intros. unfold owed. replace (Z.max 0 (Z.max (stamp s) now - stamp s)) with (Z.max 0 (now - stamp s)) by lia. reflexivity. Qed.

Lemma what_is_owed_never_grows : forall p s t t', valid p -> t <= t' -> owed p s t' <= owed p s t.
Proof. intros p s t t' [Hn _] Ht. unfold owed. nia. Qed.

Lemma what_is_owed_falls_by_what_drains : forall p s t t', valid p -> t <= t' -> owed p s t - n p * (t' - t) <= owed p s t'.
Proof. intros p s t t' [Hn _] Ht. unfold owed. nia. Qed.

Lemma what_is_owed_falls_exactly_from_the_stamp_on : forall p s t t', valid p -> stamp s <= t -> t <= t' ->
  owed p s t' = Z.max 0 (owed p s t - n p * (t' - t)).
Proof.
  intros p s t t' [Hn _] Hs Ht. unfold owed.
  replace (Z.max 0 (t - stamp s)) with (t - stamp s) by lia. replace (Z.max 0 (t' - stamp s)) with (t' - stamp s) by lia. nia.
Qed.

Lemma a_charge_is_owed_at_its_stamp : forall p s now u, valid p -> 0 <= u ->
  owed p (charged p s now u) (Z.max (stamp s) now) = owed p s now + u.
Proof.
  intros p s now u Hv Hu. pose proof (owed_is_not_negative p s now).
  rewrite before_the_stamp_all_is_owed; cbn [charged debt stamp]; lia.
Qed.

Lemma a_charge_is_owed : forall p s now u t, valid p -> 0 <= u -> Z.max (stamp s) now <= t ->
  owed p (charged p s now u) t = Z.max 0 (owed p s now + u - n p * (t - Z.max (stamp s) now)).
Proof.
  intros p s now u t Hv Hu Ht. unfold owed at 1, charged; cbn [debt stamp].
  replace (Z.max 0 (t - Z.max (stamp s) now)) with (t - Z.max (stamp s) now) by lia. reflexivity.
Qed.

Lemma a_charge_only_adds : forall p s now u t, valid p -> 0 <= debt s -> 0 <= u -> owed p s t <= owed p (charged p s now u) t \/ t < now.
Proof.
  intros p s now u t Hv Hd Hu. destruct (Z.lt_ge_cases t now) as [Hlt|Hge]; [right; lia|left].
  destruct (Z.le_gt_cases (Z.max (stamp s) now) t) as [H|H].
  - rewrite a_charge_is_owed by assumption.
    rewrite (what_is_owed_falls_exactly_from_the_stamp_on p s (Z.max (stamp s) now) t) by (assumption || lia).
    rewrite owed_at_the_later_of_stamp_and_now. lia.
  - rewrite (before_the_stamp_all_is_owed p s t) by lia.
    pose proof (owed_is_not_negative p s now).
    rewrite before_the_stamp_all_is_owed by (cbn [charged debt stamp]; lia). cbn [charged debt].
    rewrite before_the_stamp_all_is_owed by lia. lia.
Qed.

Lemma charge_cases : forall p s now u,
  (u = 0 /\ charge p s now u = (s, true)) \/
  (u <> 0 /\ owed p s now + u <= B p /\ charge p s now u = (charged p s now u, true)) \/
  (u <> 0 /\ B p < owed p s now + u /\ charge p s now u = (s, false)).
Proof.
  intros. unfold charge, fits. destruct (u =? 0) eqn:E; [apply Z.eqb_eq in E; auto|apply Z.eqb_neq in E].
  destruct (_ <=? _) eqn:F; [apply Z.leb_le in F|apply Z.leb_gt in F]; auto.
Qed.

Lemma charge_admits_what_fits : forall p s now u, valid p -> sound p s -> 0 <= u ->
  (snd (charge p s now u) = true <-> owed p s now + u <= B p).
Proof.
  intros p s now u Hv [Hd HB] Hu. pose proof (owed_is_at_most_the_debt p s now Hv Hd).
  destruct (charge_cases p s now u) as [[E ->]|[[E [F ->]]|[E [F ->]]]]; cbn [snd]; split; intros; try lia; try reflexivity; discriminate.
Qed.

Theorem every_bucket_stays_between_empty_and_full : forall p s now u, valid p -> sound p s -> 0 <= u ->
  sound p (fst (charge p s now u)).
Proof.
  intros p s now u Hv Hs Hu. destruct (charge_cases p s now u) as [[E ->]|[[E [F ->]]|[E [F ->]]]]; cbn [fst]; try assumption.
  pose proof (owed_is_not_negative p s now). unfold sound, charged; cbn [debt]. lia.
Qed.

Theorem the_stamp_never_falls : forall p s now u, stamp s <= stamp (fst (charge p s now u)).
Proof. intros. destruct (charge_cases p s now u) as [[E ->]|[[E [F ->]]|[E [F ->]]]]; cbn [fst charged stamp]; lia. Qed.

(** * The envelope *)

Lemma from_here_on : forall rs p s lo hi, valid p -> sound p s -> costs rs ->
  let from := Z.max lo (stamp s) in
  total lo hi (ledger p s rs) <= if from <=? hi then B p - owed p s from + n p * (hi - from) else 0.
Proof.
  induction rs as [|[now u] rest IH]; intros p s lo hi Hv Hs Hc; cbn zeta.
  - cbn [ledger total]. pose proof (owed_is_at_most_the_debt p s (Z.max lo (stamp s)) Hv (proj1 Hs)). destruct Hs, Hv.
    destruct (_ <=? hi) eqn:E; [apply Z.leb_le in E; nia | lia].
  - inversion Hc as [|x l Hu Hrest]; subst; cbn [snd] in Hu. cbn [ledger].
    pose proof (every_bucket_stays_between_empty_and_full p s now u Hv Hs Hu) as Hs'.
    specialize (IH p (fst (charge p s now u)) lo hi Hv Hs' Hrest). cbn zeta in IH.
    destruct (charge_cases p s now u) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R in *; cbn [fst] in *; [|clear Hs'|assumption].
    + subst u. cbn [total]. destruct (_ && _); lia.
    + cbn [charged stamp total] in *.
      set (t := Z.max (stamp s) now) in *. set (from := Z.max lo (stamp s)) in *.
      destruct (lo <=? t) eqn:Elo; [apply Z.leb_le in Elo|apply Z.leb_gt in Elo]; cbn [andb].
      * replace (Z.max lo t) with t in IH by lia.
        destruct (t <=? hi) eqn:Ehi; [apply Z.leb_le in Ehi|apply Z.leb_gt in Ehi].
        -- replace (from <=? hi) with true by (symmetry; apply Z.leb_le; lia).
           fold t in IH. unfold t in IH at 1. rewrite a_charge_is_owed_at_its_stamp in IH by assumption. fold t in IH.
           pose proof (what_is_owed_falls_by_what_drains p s from t Hv ltac:(lia)) as H.
           unfold t in H at 2. rewrite owed_at_the_later_of_stamp_and_now in H. lia.
        -- destruct (from <=? hi) eqn:Ef; [apply Z.leb_le in Ef|lia].
           pose proof (owed_is_at_most_the_debt p s from Hv (proj1 Hs)). destruct Hs, Hv. nia.
      * replace (Z.max lo t) with lo in IH by lia. replace from with lo by lia.
        destruct (lo <=? hi); [|lia].
        destruct (a_charge_only_adds p s now u lo Hv (proj1 Hs) Hu) as [H|H]; lia.
Qed.

(* In any interval of a bucket's time, whatever its ends and whatever the clock did, the admitted cost is at most the burst and what
   drains in that interval. *)
Theorem in_every_interval_at_most_the_burst_and_what_drains_is_admitted : forall p s rs lo hi,
  valid p -> sound p s -> costs rs -> lo <= hi ->
  total lo hi (ledger p s rs) <= B p + n p * (hi - lo).
Proof.
  intros p s rs lo hi Hv Hs Hc Hi. pose proof (from_here_on rs p s lo hi Hv Hs Hc) as H. cbn zeta in H.
  pose proof (owed_is_not_negative p s (Z.max lo (stamp s))). destruct Hv, Hs.
  destruct (_ <=? hi) eqn:E; [apply Z.leb_le in E|]; nia.
Qed.

(* While the clock is not set back, the time of the bucket is the reading of the clock. *)
Fixpoint ledger_by_clock (p : shape) (s : state) (rs : schedule) : schedule :=
  match rs with
  | [] => []
  | (now, u) :: rest =>
      let (s', ok) := charge p s now u in
      if ok then (now, u) :: ledger_by_clock p s' rest else ledger_by_clock p s' rest
  end.

Lemma by_clock_or_by_stamp : forall rs p s t lo hi, stamp s <= t -> forward t rs ->
  total lo hi (ledger_by_clock p s rs) = total lo hi (ledger p s rs).
Proof.
  induction rs as [|[now u] rest IH]; intros p s t lo hi Hs Hf; [reflexivity|].
  destruct Hf as [Ht Hf]. cbn [ledger ledger_by_clock].
  destruct (charge_cases p s now u) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R; cbn [total charged stamp].
  - rewrite (IH p s now) by (assumption || lia). subst u. destruct (_ && _), (_ && _); reflexivity.
  - rewrite (IH p _ now) by (cbn; assumption || lia). replace (Z.max (stamp s) now) with now by lia. reflexivity.
  - apply (IH p s now); assumption || lia.
Qed.

Theorem with_a_clock_that_is_not_set_back_the_interval_is_one_of_the_clock : forall p s rs lo hi,
  valid p -> sound p s -> costs rs -> forward (stamp s) rs -> lo <= hi ->
  total lo hi (ledger_by_clock p s rs) <= B p + n p * (hi - lo).
Proof.
  intros. rewrite (by_clock_or_by_stamp rs p s (stamp s)) by (assumption || lia).
  apply in_every_interval_at_most_the_burst_and_what_drains_is_admitted; assumption.
Qed.

(* Any part of a schedule during which the clock, in whatever order, reads from lo to hi, admits no more than that either. *)
Fixpoint admitted (p : shape) (s : state) (rs : schedule) : Z :=
  match rs with
  | [] => 0
  | (now, u) :: rest => let (s', ok) := charge p s now u in (if ok then u else 0) + admitted p s' rest
  end.

Lemma admitted_is_in_the_ledger : forall rs p s lo hi, stamp s <= hi -> Forall (fun r => lo <= fst r <= hi) rs ->
  admitted p s rs = total lo hi (ledger p s rs).
Proof.
  induction rs as [|[now u] rest IH]; intros p s lo hi Hs Hf; [reflexivity|].
  inversion Hf as [|x l H Hrest]; subst; cbn [fst] in H. cbn [admitted ledger].
  destruct (charge_cases p s now u) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R; cbn [total].
  - rewrite (IH p s lo hi) by assumption. subst u. destruct (_ && _); reflexivity.
  - rewrite (IH p _ lo hi) by (cbn; assumption || lia). cbn [charged stamp].
    replace (lo <=? _) with true by (symmetry; apply Z.leb_le; lia). replace (_ <=? hi) with true by (symmetry; apply Z.leb_le; lia). reflexivity.
  - rewrite (IH p s lo hi) by assumption. reflexivity.
Qed.

Theorem however_the_clock_is_set_between_two_readings_no_more_is_admitted : forall p s before during lo hi,
  valid p -> sound p s -> costs before -> costs during -> lo <= hi ->
  stamp s <= hi -> Forall (fun r => fst r <= hi) before -> Forall (fun r => lo <= fst r <= hi) during ->
  admitted p (finally p s before) during <= B p + n p * (hi - lo).
Proof.
  intros p s before during lo hi Hv Hs Hcb Hcd Hi Hst Hb Hd.
  assert (Hf : sound p (finally p s before) /\ stamp (finally p s before) <= hi).
  { clear Hcd Hd. revert s Hs Hst. induction before as [|[now u] rest IH]; intros s Hs Hst; [split; assumption|].
    inversion Hcb; inversion Hb; subst; cbn [fst snd] in *. cbn [finally]. apply IH; try assumption.
    - apply every_bucket_stays_between_empty_and_full; assumption.
    - destruct (charge_cases p s now u) as [[E ->]|[[E [F ->]]|[E [F ->]]]]; cbn [fst charged stamp]; lia. }
  destruct Hf as [Hf1 Hf2]. rewrite (admitted_is_in_the_ledger _ _ _ lo hi) by assumption.
  apply in_every_interval_at_most_the_burst_and_what_drains_is_admitted; assumption.
Qed.

(** * Denials are invisible *)

Theorem a_denied_request_leaves_the_bucket_as_it_was : forall p s now u, snd (charge p s now u) = false -> fst (charge p s now u) = s.
Proof. intros p s now u. destruct (charge_cases p s now u) as [[E ->]|[[E [F ->]]|[E [F ->]]]]; cbn; [discriminate|discriminate|reflexivity]. Qed.

Lemma answers_in_two_parts : forall before rest p s, answers p s (before ++ rest) = answers p s before ++ answers p (finally p s before) rest.
Proof.
  induction before as [|[now u] before IH]; intros rest p s; [reflexivity|].
  cbn [app answers finally]. destruct (charge p s now u) as [s' ok]. cbn [app fst]. f_equal. apply IH.
Qed.

(* Cut a denied request out of a schedule: all other answers stay, and so does the bucket. *)
Theorem a_denied_request_changes_no_later_answer : forall p s before now u rest,
  let then_ := finally p s before in
  snd (charge p then_ now u) = false ->
  answers p s (before ++ rest) = answers p s before ++ answers p then_ rest /\
  answers p s (before ++ (now, u) :: rest) = answers p s before ++ report p then_ now u false :: answers p then_ rest /\
  finally p then_ ((now, u) :: rest) = finally p then_ rest.
Proof.
  intros p s before now u rest then_ H. split; [apply answers_in_two_parts|split].
  - rewrite answers_in_two_parts. fold then_. f_equal. cbn [answers].
    pose proof (a_denied_request_leaves_the_bucket_as_it_was p then_ now u H) as Hs.
    destruct (charge p then_ now u) as [s' ok]; cbn [fst snd] in *. subst. reflexivity.
  - cbn [finally]. rewrite a_denied_request_leaves_the_bucket_as_it_was by assumption. reflexivity.
Qed.

(** * Buckets that nobody can tell apart *)

(* Two buckets agree from a time on if they owe the same at every clock reading from there on, and would be stamped alike. *)
Definition agree_from (p : shape) (now : Z) (s1 s2 : state) : Prop :=
  forall t, now <= t -> owed p s1 t = owed p s2 t /\ Z.max (stamp s1) t = Z.max (stamp s2) t.

Lemma buckets_that_agree_answer_alike : forall rs p now s1 s2, agree_from p now s1 s2 -> Forall (fun r => now <= fst r) rs ->
  answers p s1 rs = answers p s2 rs.
Proof.
  induction rs as [|[t u] rest IH]; intros p now s1 s2 Ha Hf; [reflexivity|].
  inversion Hf as [|x l Ht Hrest]; subst; cbn [fst] in Ht. destruct (Ha t Ht) as [Ho Hm].
  assert (Hr : forall ok, report p s1 t u ok = report p s2 t u ok).
  { intro ok. unfold report, remaining, reset_after, retry_after, until. rewrite Ho.
    replace (Z.max 0 (stamp s1 - t)) with (Z.max 0 (stamp s2 - t)) by lia. reflexivity. }
  cbn [answers]. unfold charge, fits. rewrite Ho.
  destruct (u =? 0); [rewrite Hr; f_equal; apply (IH p now); assumption|].
  destruct (_ <=? _).
  - unfold charged. rewrite Ho, Hm. reflexivity.
  - rewrite Hr. f_equal. apply (IH p now); assumption.
Qed.

(* A store may write down what has drained until now, or not: nobody can tell. *)
Definition passed (p : shape) (s : state) (now : Z) : state := State (owed p s now) (Z.max (stamp s) now).

Theorem letting_time_pass_is_invisible : forall p s now rs, valid p -> 0 <= debt s -> Forall (fun r => now <= fst r) rs ->
  answers p (passed p s now) rs = answers p s rs.
Proof.
  intros p s now rs Hv Hd. apply buckets_that_agree_answer_alike. intros t Ht. cbn [passed stamp]. split; [|lia].
  destruct (Z.le_gt_cases (Z.max (stamp s) now) t) as [H|H].
  - rewrite (what_is_owed_falls_exactly_from_the_stamp_on p s (Z.max (stamp s) now) t) by (assumption || lia).
    rewrite owed_at_the_later_of_stamp_and_now. unfold owed at 1, passed; cbn [debt stamp].
    replace (Z.max 0 (t - Z.max (stamp s) now)) with (t - Z.max (stamp s) now) by lia. reflexivity.
  - pose proof (owed_is_not_negative p s now).
    rewrite (before_the_stamp_all_is_owed p s t) by lia. rewrite before_the_stamp_all_is_owed by (cbn; lia).
    cbn [passed debt]. apply before_the_stamp_all_is_owed; lia.
Qed.

Theorem all_full_buckets_are_alike : forall p s1 s2 now rs, valid p -> stamp s1 <= now -> stamp s2 <= now ->
  owed p s1 now = 0 -> owed p s2 now = 0 -> Forall (fun r => now <= fst r) rs -> answers p s1 rs = answers p s2 rs.
Proof.
  intros p s1 s2 now rs Hv H1 H2 E1 E2. apply buckets_that_agree_answer_alike. intros t Ht. split; [|lia].
  pose proof (what_is_owed_never_grows p s1 now t Hv Ht). pose proof (what_is_owed_never_grows p s2 now t Hv Ht).
  pose proof (owed_is_not_negative p s1 t). pose proof (owed_is_not_negative p s2 t). lia.
Qed.

(* A bucket that was forgotten when it was full begins anew with a stamp of its own, and gives the answers of the one that stayed. *)
Theorem evicting_a_full_bucket_is_unobservable : forall p s now fresh rs, valid p -> stamp s <= now -> fresh <= now ->
  owed p s now = 0 -> Forall (fun r => now <= fst r) rs -> answers p (State 0 fresh) rs = answers p s rs.
Proof.
  intros p s now fresh rs Hv Hs Hf E Hrs. apply (all_full_buckets_are_alike p (State 0 fresh) s now); try assumption.
  pose proof (drained_is_not_negative p (now - fresh) Hv). unfold owed; cbn [debt stamp]. lia.
Qed.

(** * What is announced is exact *)

Lemma until_is_exact : forall p s now units room x, valid p -> 0 <= debt s -> 0 <= x -> 0 <= room -> owed p s now = units + room ->
  (owed p s (now + x) <= room <-> until p s now units <= x).
Proof.
  intros p s now units room x Hv Hd Hx Hr Ho. unfold until. destruct (units <=? 0) eqn:E; [apply Z.leb_le in E|apply Z.leb_gt in E].
  - pose proof (what_is_owed_never_grows p s now (now + x) Hv ltac:(lia)). split; lia.
  - destruct (Z.le_gt_cases (Z.max (stamp s) now) (now + x)) as [H|H].
    + rewrite (what_is_owed_falls_exactly_from_the_stamp_on p s (Z.max (stamp s) now) (now + x)) by (assumption || lia).
      rewrite owed_at_the_later_of_stamp_and_now, Ho.
      pose proof (ceil_div_is_the_least_that_suffices units (n p) (x - Z.max 0 (stamp s - now)) (proj1 Hv)).
      replace (now + x - Z.max (stamp s) now) with (x - Z.max 0 (stamp s - now)) by lia.
      split; [intro; assert (ceil_div units (n p) <= x - Z.max 0 (stamp s - now)) by (apply H0; nia); lia|].
      intro. assert (units <= (x - Z.max 0 (stamp s - now)) * n p) by (apply H0; lia). nia.
    + rewrite before_the_stamp_all_is_owed in * by lia.
      pose proof (ceil_div_positive units (n p) (proj1 Hv) E). split; lia.
Qed.

(* Denied with a wait w: every attempt before now+w fails, and the attempt at now+w succeeds, if nobody took in between. That others may
   have tried and failed in between makes no difference: see a_denied_request_changes_no_later_answer. *)
Theorem retry_after_is_exact : forall p s now u, valid p -> sound p s -> 0 < u <= B p -> snd (charge p s now u) = false ->
  let w := retry (report p s now u false) in
  0 < w /\ (forall x, 0 <= x < w -> snd (charge p s (now + x) u) = false) /\ snd (charge p s (now + w) u) = true.
Proof.
  intros p s now u Hv Hs Hu Hdenied w.
  assert (Hw : w = retry_after p s now u).
  { unfold w, report; cbn [retry negb orb andb]. replace (u <? 0) with false by (symmetry; apply Z.ltb_ge; lia).
    replace (B p <? u) with false by (symmetry; apply Z.ltb_ge; lia). reflexivity. }
  assert (Hx : forall x, 0 <= x -> (snd (charge p s (now + x) u) = true <-> w <= x)).
  { intros x H0. rewrite charge_admits_what_fits by (assumption || lia). rewrite Hw. unfold retry_after.
    rewrite <- (until_is_exact p s now _ (B p - u) x) by (assumption || destruct Hs; lia). lia. }
  assert (Hpos : 0 < w).
  { destruct (Z.lt_ge_cases 0 w) as [|Hle]; [assumption|]. apply (Hx 0) in Hle; [|lia]. rewrite Z.add_0_r in Hle. congruence. }
  split; [assumption|split].
  - intros x H. apply not_true_is_false. intro Ht. apply Hx in Ht; lia.
  - apply Hx; lia.
Qed.

(* Trying early, however often, does not put it off. *)
Theorem attempts_before_the_wait_is_over_change_nothing : forall p s now u early, valid p -> sound p s -> 0 < u <= B p ->
  snd (charge p s now u) = false ->
  let w := retry (report p s now u false) in
  Forall (fun r => now <= fst r < now + w /\ snd r = u) early ->
  finally p s early = s /\ snd (charge p (finally p s early) (now + w) u) = true.
Proof.
  intros p s now u early Hv Hs Hu Hdenied w Hearly.
  destruct (retry_after_is_exact p s now u Hv Hs Hu Hdenied) as (_ & Hbefore & Hafter). fold w in Hbefore, Hafter.
  assert (E : finally p s early = s); [|rewrite E; split; [reflexivity|assumption]].
  induction Hearly as [|[t c] rest [Ht Hc] Hrest IH]; [reflexivity|]. cbn [fst snd] in *. subst c. cbn [finally].
  rewrite a_denied_request_leaves_the_bucket_as_it_was; [assumption|].
  replace t with (now + (t - now)) by lia. apply Hbefore. lia.
Qed.

Theorem remaining_is_exact : forall p s now tokens, valid p -> sound p s -> 0 <= tokens ->
  (snd (charge p s now (tokens * P p)) = true <-> tokens <= remaining p s now).
Proof.
  intros p s now tokens Hv Hs Ht. destruct Hv as (Hn & HP & HB).
  rewrite charge_admits_what_fits by (unfold valid; auto; nia). unfold remaining.
  pose proof (owed_is_at_most_the_debt p s now ltac:(unfold valid; auto) (proj1 Hs)). destruct Hs.
  rewrite floor_div_is_the_most_that_fits by assumption. lia.
Qed.

Theorem reset_after_is_exact : forall p s now x, valid p -> sound p s -> 0 <= x ->
  (owed p s (now + x) = 0 <-> reset_after p s now <= x).
Proof.
  intros p s now x Hv Hs Hx. unfold reset_after. rewrite <- (until_is_exact p s now _ 0 x) by (assumption || destruct Hs; lia).
  pose proof (owed_is_not_negative p s (now + x)). lia.
Qed.

(** * Ledgers that another bucket admits as well *)

Lemma a_forward_ledger_is_its_own : forall l p s, forward (stamp s) l -> admits_all p s l -> forall lo hi, total lo hi (ledger p s l) = total lo hi l.
Proof.
  induction l as [|[t u] rest IH]; intros p s Hf Ha lo hi; [reflexivity|].
  destruct Hf as [Ht Hf], Ha as [Ha1 Ha2]. cbn [ledger].
  destruct (charge_cases p s t u) as [[E R]|[[E [F R]]|[E [F R]]]]; rewrite R in *; cbn [fst snd] in *; cbn [total]; [| |discriminate].
  - rewrite IH; [subst u; destruct (_ && _), (_ && _); reflexivity| |assumption].
    destruct rest as [|[t' u'] rest]; [exact I|]. destruct Hf. cbn; split; [lia|assumption].
  - rewrite IH; [|cbn [charged stamp]; replace (Z.max (stamp s) t) with t by lia; assumption|assumption].
    cbn [charged stamp]. replace (Z.max (stamp s) t) with t by lia. reflexivity.
Qed.

Theorem what_one_bucket_admits_obeys_the_envelope : forall p s l lo hi, valid p -> sound p s -> costs l -> forward (stamp s) l ->
  admits_all p s l -> lo <= hi -> total lo hi l <= B p + n p * (hi - lo).
Proof.
  intros. rewrite <- (a_forward_ledger_is_its_own l p s) by assumption.
  apply in_every_interval_at_most_the_burst_and_what_drains_is_admitted; assumption.
Qed.
