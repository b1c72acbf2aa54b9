(* Reads operations, one a line, and writes what the model makes of them, one line each. Buckets have numbers below 64 and are full
   at first. A shape is four numbers: units per tick, units in a token, units in all, nanoseconds in a tick.

     bucket I shape             bucket I is full and has this shape         -> debt stamp
     state I debt stamp         bucket I stands like this                   -> debt stamp
     take I now cost            in tokens                                   -> answer debt stamp
     convert I shape change     the shape changes                           -> debt stamp
     held I shape known change  as convert, and nothing drains from known on -> debt stamp
     refund I now units taken   units that were charged at taken            -> debt stamp
     full I                     from when on bucket I is full               -> time
     all now I cost I cost ...  all or nothing; each bucket is named once   -> allowed, then for each: answer debt stamp

   An answer is five numbers: allowed, remaining, retry, reset, never; yes is 1. *)

module Whole = Z
open Model

let none = { per_tick = { n = Whole.one; p = Whole.one; b = Whole.zero }; tick = Whole.one }
let shapes = Array.make 64 none
let states = Array.make 64 { debt = Whole.zero; stamp = Whole.zero }
let out = Buffer.create (1 lsl 16)

let number z = Buffer.add_string out (Whole.to_string z); Buffer.add_char out ' '
let yes b = Buffer.add_string out (if b then "1 " else "0 ")
let state i = number states.(i).debt; number states.(i).stamp
let answer a = yes a.allowed; number a.remains; number a.retry; number a.reset; yes a.never

let shape n p b t =
  { per_tick = { n = Whole.of_string n; p = Whole.of_string p; b = Whole.of_string b }; tick = Whole.of_string t }

let rec parts = function
  | [] -> []
  | i :: cost :: rest -> (int_of_string i, Whole.of_string cost) :: parts rest
  | [ _ ] -> failwith "a bucket without a cost"

let all now asked =
  let before = List.map (fun (i, cost) -> ((shapes.(i), states.(i)), cost)) asked in
  let alone = List.map (fun ((q, s), cost) -> snd (ask q s now cost)) before in
  let after, allowed = ask_all now before in
  yes allowed;
  List.iter2 (fun (i, _) s -> states.(i) <- s) asked after;
  List.iter2
    (fun (i, cost) ok ->
      answer (report_ticked until_or_longest shapes.(i) states.(i) now (weigh shapes.(i).per_tick cost) ok);
      state i)
    asked alone

let operation = function
  | [ "bucket"; i; n; p; b; t ] ->
      let i = int_of_string i in
      shapes.(i) <- shape n p b t;
      states.(i) <- { debt = Whole.zero; stamp = Whole.zero };
      state i
  | [ "state"; i; debt; stamp ] ->
      let i = int_of_string i in
      states.(i) <- { debt = Whole.of_string debt; stamp = Whole.of_string stamp };
      state i
  | [ "take"; i; now; cost ] ->
      let i = int_of_string i in
      let s, a = take_ticked until_or_longest shapes.(i) states.(i) (Whole.of_string now) (Whole.of_string cost) in
      states.(i) <- s;
      answer a;
      state i
  | [ "convert"; i; n; p; b; t; change ] ->
      let i = int_of_string i in
      let q = shape n p b t in
      states.(i) <- convert_ticked shapes.(i) q states.(i) (Whole.of_string change);
      shapes.(i) <- q;
      state i
  | [ "held"; i; n; p; b; t; known; change ] ->
      let i = int_of_string i in
      let q = shape n p b t in
      states.(i) <- convert_held_ticked shapes.(i) q states.(i) (Whole.of_string known) (Whole.of_string change);
      shapes.(i) <- q;
      state i
  | [ "refund"; i; now; units; taken ] ->
      let i = int_of_string i in
      states.(i) <- refund_ticked shapes.(i) states.(i) (Whole.of_string now) (Whole.of_string units) (Whole.of_string taken);
      state i
  | [ "full"; i ] ->
      let i = int_of_string i in
      number (full_at_or_latest shapes.(i) states.(i))
  | "all" :: now :: asked -> all (Whole.of_string now) (parts asked)
  | words -> failwith ("no such operation: " ^ String.concat " " words)

let () =
  try
    while true do
      operation (String.split_on_char ' ' (input_line stdin));
      Buffer.truncate out (Buffer.length out - 1);
      Buffer.add_char out '\n';
      if Buffer.length out > 1 lsl 15 then begin
        print_string (Buffer.contents out);
        Buffer.clear out
      end
    done
  with End_of_file -> print_string (Buffer.contents out)
