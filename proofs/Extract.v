(* The oracle.

   From the functions that the theorems are about, Coq writes a program in OCaml, in whole numbers without bounds. oracle.ml feeds it the
   operations that the differential test also gives to the Go code, in the form of Ticks.v, which covers every shape that package rate
   compiles. *)

From Headgate Require Import Arithmetic Bucket Reconfigure Refund Several Sketch Ticks.
Require Extraction.
Require Import ExtrOcamlBasic ExtrOcamlZBigInt.

Extraction Language OCaml.
Extraction "model.ml" take_ticked ask_all ask report_ticked until_or_longest convert_ticked convert_held_ticked
  refund_ticked
  full_at_or_latest weigh.
