(* Whole numbers, divided upwards.

   Buckets count in whole numbers, and every time they announce is rounded up: whoever waits that long has waited long enough. What is
   needed of such a division is one fact, that it finds the least number of steps that suffice. Everything that is called exact
   elsewhere rests on it. *)

Require Import ZArith Lia.
Open Scope Z_scope.

Definition ceil_div (a b : Z) : Z := (a + b - 1) / b.

Theorem ceil_div_is_the_least_that_suffices : forall a b w, 0 < b -> (ceil_div a b <= w <-> a <= w * b).
Proof.
  intros a b w Hb. unfold ceil_div. split; intro H.
  - pose proof (Z.mod_pos_bound (a + b - 1) b Hb). pose proof (Z.div_mod (a + b - 1) b ltac:(lia)). nia.
  - assert ((a + b - 1) / b < w + 1); [apply Z.div_lt_upper_bound; nia | lia].
Qed.

Lemma ceil_div_suffices : forall a b, 0 < b -> a <= ceil_div a b * b.
Proof. intros. apply (ceil_div_is_the_least_that_suffices a b); lia. Qed.

Lemma ceil_div_by_one : forall a, ceil_div a 1 = a.
Proof. intros. unfold ceil_div. rewrite Z.div_1_r. lia. Qed.

Lemma ceil_div_positive : forall a b, 0 < b -> 0 < a -> 0 < ceil_div a b.
Proof. intros a b Hb Ha. pose proof (ceil_div_suffices a b Hb). nia. Qed.

Lemma floor_div_is_the_most_that_fits : forall a b w, 0 < b -> (w <= a / b <-> w * b <= a).
Proof.
  intros a b w Hb. split; intro H.
  - pose proof (Z.mul_div_le a b Hb). nia.
  - apply Z.div_le_lower_bound; nia.
Qed.

Lemma product_is_not_negative : forall a b, 0 <= a -> 0 <= b -> 0 <= a * b.
Proof. intros. apply Z.mul_nonneg_nonneg; assumption. Qed.
