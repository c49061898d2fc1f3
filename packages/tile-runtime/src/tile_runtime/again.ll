; Calls that come again, without Python (again.py): looks a call up by the shapes of its operands, asks what must still hold,
; allocates the results and calls the prepared kernels. Linux, x86-64, CPython's own objects.
;
; SELF (a bytes object; 8-byte words from byte 32)
;     0 ptr torch   the types Tensor and Parameter, and what reads a tensor into a DLTensor; null before torch is known
;     1 ptr slots   1024 records (bytes objects) or null, by @look
; RECORD (words from byte 32)
;     0 count       arguments            6 same      pairs of arguments that are one object
;     1 leading     how many of them     7 asked     conditions
;                   come before the
;                   first that is neither
;                   a tensor nor None
;     2 pool        objects in all       8 made      objects that a call makes: results, then temporaries
;     3 room        most arguments       9 results   how many of them are results
;                   of a function       10 held      objects that are the same for each call
;     4 mask        of addresses        11 steps     kernels
;     5 guarded     operands of check   12 check     METH_FASTCALL function of torch, true for operands like the first ones
;    13 words       of memory           14 entries   of dictionaries
;    15 apart       pairs of arguments that share no memory      16 numbers   C functions that tell a number
;    17 next        the record, or null, of what else the call may be; it lives as long as this one
;    18 absent      leading arguments that are None
;    then: the other arguments; the places of `absent`; (place, bytes, place, bytes) of each of `apart`; (address, value) of
;    each of `words`; (function, value) of each of `numbers`; (dictionary, key, object or null for none) of each of `entries`; the places of
;    `guarded`; the pairs of `same`; (function, result) of each condition; (function, tuple of its arguments) of what is
;    made; (object, address) of what is held; (function, words, launch, counter, n, n places in the pool) of each step.
;    The pool is the leading arguments, what is made, what is held. A step whose `launch` is not 0 is tried on the addresses first
;    (tile_runtime.native.Words).
;
; @tl_again_v1 returns None for a call that it does not know; nothing has happened then.
;
; @tl_enter_v1 is the vectorcall of Python functions (PEP 590) whose first parameters are such a call's arguments: it asks
; @tl_again_v1 first, where the others are at their defaults, and runs the function for what that does not know.
;
; ENTRY (8-byte words), which @tl_entries has for each function
;     0 self        the SELF of its known calls, null before there is one
;     1 positional  most arguments without a name
;     2 parameters  in all
;     3 count       how many of them are arguments of known calls
;     4             (name, default or null for none) of each

target triple = "x86_64-unknown-linux-gnu"

declare ptr @PyObject_Call(ptr, ptr, ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare i32 @PyObject_RichCompareBool(ptr, ptr, i32)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare void @PyErr_Clear()
declare ptr @_PyFunction_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyTuple_New(i64)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
@_Py_NoneStruct = external global i8
@_Py_TrueStruct = external global i8
@tl_entries = global [512 x i64] zeroinitializer ; 256 times: function, its ENTRY; by the address of the function, then on

; The word at the cursor, which moves on.
define internal i64 @next(ptr %cursor) {
  %at = load ptr, ptr %cursor
  %word = load i64, ptr %at
  %following = getelementptr i64, ptr %at, i64 1
  store ptr %following, ptr %cursor
  ret i64 %word
}

define internal ptr @next_object(ptr %cursor) {
  %word = call i64 @next(ptr %cursor)
  %object = inttoptr i64 %word to ptr
  ret ptr %object
}

; %passed[i] = %pool[the places at the cursor], n of them
define internal void @gather(ptr %cursor, i64 %n, ptr %pool, ptr %passed) {
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i1, %one ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %one, label %done
one:
  %place = call i64 @next(ptr %cursor)
  %from = getelementptr ptr, ptr %pool, i64 %place
  %object = load ptr, ptr %from
  %to = getelementptr ptr, ptr %passed, i64 %i
  store ptr %object, ptr %to
  %i1 = add i64 %i, 1
  br label %each
done:
  ret void
}

; The address of a tensor's first element; 0 for what is no tensor, or cannot be read.
define internal i64 @address(ptr %torch, ptr %object) {
entry:
  %tensor = alloca [48 x i8], align 16
  %type.p = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type.p
  %tensor.type = load ptr, ptr %torch
  %plain = icmp eq ptr %type, %tensor.type
  br i1 %plain, label %read, label %no
read:
  %reader.p = getelementptr ptr, ptr %torch, i64 2
  %reader = load ptr, ptr %reader.p
  %status = call i32 %reader(ptr %object, ptr %tensor)
  %is.read = icmp eq i32 %status, 0
  br i1 %is.read, label %sum, label %unread
unread:
  call void @PyErr_Clear()
  br label %no
sum:
  %offset.p = getelementptr i8, ptr %tensor, i64 40
  %offset = load i64, ptr %offset.p
  %data = load i64, ptr %tensor
  %address = add i64 %data, %offset
  ret i64 %address
no:
  ret i64 0
}

; How many arguments come before the first that is neither a tensor nor None, a hash of the shapes of those, and their addresses (of
; None: 0), or-ed and one by one; -1 of them if one cannot be read.
define internal { i64, i64, i64 } @look(ptr %torch, ptr %args, i64 %count, ptr %addresses) {
entry:
  %tensor = alloca [48 x i8], align 16
  %parameter.p = getelementptr ptr, ptr %torch, i64 1
  %reader.p = getelementptr ptr, ptr %torch, i64 2
  %tensor.type = load ptr, ptr %torch
  %parameter.type = load ptr, ptr %parameter.p
  %reader = load ptr, ptr %reader.p
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %i1, %following ]
  %hash = phi i64 [ 0, %entry ], [ %hash.new, %following ]
  %low = phi i64 [ 0, %entry ], [ %low.new, %following ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %done
one:
  %object.p = getelementptr ptr, ptr %args, i64 %i
  %object = load ptr, ptr %object.p
  %type.p = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type.p
  %plain = icmp eq ptr %type, %tensor.type
  %wrapped = icmp eq ptr %type, %parameter.type
  %known = or i1 %plain, %wrapped
  br i1 %known, label %read, label %other
other:
  %absent = icmp eq ptr %object, @_Py_NoneStruct
  br i1 %absent, label %nothing, label %done
nothing:
  %nothing.p = getelementptr i64, ptr %addresses, i64 %i
  store i64 0, ptr %nothing.p
  %hash.nothing = call i64 @mix(i64 %hash, i64 -1)
  br label %following
read:
  %status = call i32 %reader(ptr %object, ptr %tensor)
  %is.read = icmp eq i32 %status, 0
  br i1 %is.read, label %shape, label %unread
shape:
  %rank.p = getelementptr i8, ptr %tensor, i64 16
  %rank.32 = load i32, ptr %rank.p
  %rank = zext i32 %rank.32 to i64
  %shape.p = getelementptr i8, ptr %tensor, i64 24
  %extents = load ptr, ptr %shape.p
  %offset.p = getelementptr i8, ptr %tensor, i64 40
  %offset = load i64, ptr %offset.p
  %data = load i64, ptr %tensor
  %address = add i64 %data, %offset
  %low.1 = or i64 %low, %address
  %address.p = getelementptr i64, ptr %addresses, i64 %i
  store i64 %address, ptr %address.p
  %hash.0 = call i64 @mix(i64 %hash, i64 %rank)
  br label %axis
axis:
  %a = phi i64 [ 0, %shape ], [ %a1, %extent ]
  %hash.1 = phi i64 [ %hash.0, %shape ], [ %hash.2, %extent ]
  %longer = icmp ult i64 %a, %rank
  br i1 %longer, label %extent, label %following
extent:
  %extent.p = getelementptr i64, ptr %extents, i64 %a
  %size = load i64, ptr %extent.p
  %hash.2 = call i64 @mix(i64 %hash.1, i64 %size)
  %a1 = add i64 %a, 1
  br label %axis
following:
  %hash.new = phi i64 [ %hash.nothing, %nothing ], [ %hash.1, %axis ]
  %low.new = phi i64 [ %low, %nothing ], [ %low.1, %axis ]
  %i1 = add i64 %i, 1
  br label %each
unread:
  call void @PyErr_Clear()
  ret { i64, i64, i64 } { i64 -1, i64 0, i64 0 }
done:
  %r0 = insertvalue { i64, i64, i64 } undef, i64 %i, 0
  %r1 = insertvalue { i64, i64, i64 } %r0, i64 %hash, 1
  %r2 = insertvalue { i64, i64, i64 } %r1, i64 %low, 2
  ret { i64, i64, i64 } %r2
}

; (hash ^ value) * (2^64 / the golden ratio): again.py has the same.
define internal i64 @mix(i64 %hash, i64 %value) {
  %mixed = xor i64 %hash, %value
  %spread = mul i64 %mixed, -7046029254386353131
  ret i64 %spread
}

; Whether two objects are the same, or of one type and equal.
define internal i1 @equal(ptr %a, ptr %b) {
entry:
  %same = icmp eq ptr %a, %b
  br i1 %same, label %yes, label %types
types:
  %a.p = getelementptr i8, ptr %a, i64 8
  %b.p = getelementptr i8, ptr %b, i64 8
  %a.type = load ptr, ptr %a.p
  %b.type = load ptr, ptr %b.p
  %one.type = icmp eq ptr %a.type, %b.type
  br i1 %one.type, label %compare, label %no
compare:
  %answer = call i32 @PyObject_RichCompareBool(ptr %a, ptr %b, i32 2)
  %failed = icmp slt i32 %answer, 0
  br i1 %failed, label %error, label %answered
error:
  call void @PyErr_Clear()
  br label %no
answered:
  %right = icmp eq i32 %answer, 1
  ret i1 %right
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether the memory of no pair at the cursor overlaps.
define internal i1 @are_apart(ptr %cursor, i64 %n, ptr %leading) {
entry:
  br label %each
each:
  %k = phi i64 [ 0, %entry ], [ %k1, %one ]
  %more = icmp ult i64 %k, %n
  br i1 %more, label %one, label %yes
one:
  %i = call i64 @next(ptr %cursor)
  %i.bytes = call i64 @next(ptr %cursor)
  %j = call i64 @next(ptr %cursor)
  %j.bytes = call i64 @next(ptr %cursor)
  %i.p = getelementptr i64, ptr %leading, i64 %i
  %j.p = getelementptr i64, ptr %leading, i64 %j
  %a = load i64, ptr %i.p
  %b = load i64, ptr %j.p
  %a.end = add i64 %a, %i.bytes
  %b.end = add i64 %b, %j.bytes
  %below = icmp ule i64 %a.end, %b
  %above = icmp ule i64 %b.end, %a
  %apart = or i1 %below, %above
  %k1 = add i64 %k, 1
  br i1 %apart, label %each, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether all that the record says of a call holds for this one; the cursor then stands at what is made.
define internal i1 @holds(ptr %record, ptr %cursor, ptr %args, ptr %leading, ptr %passed) {
entry:
  %count = load i64, ptr %record
  %tensors.p = getelementptr i64, ptr %record, i64 1
  %tensors = load i64, ptr %tensors.p
  %guarded.p = getelementptr i64, ptr %record, i64 5
  %guarded = load i64, ptr %guarded.p
  %same.p = getelementptr i64, ptr %record, i64 6
  %same = load i64, ptr %same.p
  %asked.p = getelementptr i64, ptr %record, i64 7
  %asked = load i64, ptr %asked.p
  %check.p = getelementptr i64, ptr %record, i64 12
  %check = load ptr, ptr %check.p
  %words.p = getelementptr i64, ptr %record, i64 13
  %words = load i64, ptr %words.p
  %entries.p = getelementptr i64, ptr %record, i64 14
  %entries = load i64, ptr %entries.p
  %apart.p = getelementptr i64, ptr %record, i64 15
  %apart = load i64, ptr %apart.p
  %numbers.p = getelementptr i64, ptr %record, i64 16
  %numbers = load i64, ptr %numbers.p
  %absent.p = getelementptr i64, ptr %record, i64 18
  %absent = load i64, ptr %absent.p
  br label %other

other:
  %o = phi i64 [ %tensors, %entry ], [ %o1, %other.right ]
  %others.left = icmp ult i64 %o, %count
  br i1 %others.left, label %other.one, label %absences
other.one:
  %wanted = call ptr @next_object(ptr %cursor)
  %o.p = getelementptr ptr, ptr %args, i64 %o
  %given = load ptr, ptr %o.p
  %equals = call i1 @equal(ptr %given, ptr %wanted)
  br i1 %equals, label %other.right, label %no
other.right:
  %o1 = add i64 %o, 1
  br label %other

absences:
  br label %absence
absence:
  %n = phi i64 [ 0, %absences ], [ %n1, %absence.right ]
  %absences.left = icmp ult i64 %n, %absent
  br i1 %absences.left, label %absence.one, label %memory
absence.one:
  %n.place = call i64 @next(ptr %cursor)
  %n.p = getelementptr ptr, ptr %args, i64 %n.place
  %n.given = load ptr, ptr %n.p
  %n.none = icmp eq ptr %n.given, @_Py_NoneStruct
  br i1 %n.none, label %absence.right, label %no
absence.right:
  %n1 = add i64 %n, 1
  br label %absence

memory:
  %separate = call i1 @are_apart(ptr %cursor, i64 %apart, ptr %leading)
  br i1 %separate, label %word.each, label %no

word.each:
  br label %word
word:
  %w = phi i64 [ 0, %word.each ], [ %w1, %word.right ]
  %words.left = icmp ult i64 %w, %words
  br i1 %words.left, label %word.one, label %number.each
word.one:
  %word.p = call ptr @next_object(ptr %cursor)
  %word.wanted = call i64 @next(ptr %cursor)
  %word.found = load i64, ptr %word.p
  %word.same = icmp eq i64 %word.found, %word.wanted
  br i1 %word.same, label %word.right, label %no
word.right:
  %w1 = add i64 %w, 1
  br label %word

number.each:
  %u = phi i64 [ 0, %word ], [ %u1, %number.right ]
  %numbers.left = icmp ult i64 %u, %numbers
  br i1 %numbers.left, label %number.one, label %entry.each
number.one:
  %tell = call ptr @next_object(ptr %cursor)
  %number.wanted = call i64 @next(ptr %cursor)
  %number.found = call i64 %tell()
  %number.same = icmp eq i64 %number.found, %number.wanted
  br i1 %number.same, label %number.right, label %no
number.right:
  %u1 = add i64 %u, 1
  br label %number.each

entry.each:
  %e = phi i64 [ 0, %number.each ], [ %e1, %entry.right ]
  %entries.left = icmp ult i64 %e, %entries
  br i1 %entries.left, label %entry.one, label %operands.gathered
entry.one:
  %dictionary = call ptr @next_object(ptr %cursor)
  %key = call ptr @next_object(ptr %cursor)
  %entry.wanted = call ptr @next_object(ptr %cursor)
  %entry.found = call ptr @PyDict_GetItemWithError(ptr %dictionary, ptr %key)
  %entry.same = icmp eq ptr %entry.found, %entry.wanted
  br i1 %entry.same, label %entry.right, label %entry.other
entry.right:
  %e1 = add i64 %e, 1
  br label %entry.each
entry.other:
  call void @PyErr_Clear()
  br label %no

operands.gathered:
  call void @gather(ptr %cursor, i64 %guarded, ptr %args, ptr %passed)
  br label %pair

pair:
  %p = phi i64 [ 0, %operands.gathered ], [ %p1, %pair.right ]
  %pairs.left = icmp ult i64 %p, %same
  br i1 %pairs.left, label %pair.one, label %operands
pair.one:
  %i = call i64 @next(ptr %cursor)
  %j = call i64 @next(ptr %cursor)
  %i.p = getelementptr ptr, ptr %args, i64 %i
  %j.p = getelementptr ptr, ptr %args, i64 %j
  %a = load ptr, ptr %i.p
  %b = load ptr, ptr %j.p
  %identical = icmp eq ptr %a, %b
  br i1 %identical, label %pair.right, label %no
pair.right:
  %p1 = add i64 %p, 1
  br label %pair

operands:
  %alike = call ptr @PyObject_Vectorcall(ptr %check, ptr %passed, i64 %guarded, ptr null)
  %checked = call i1 @is_true(ptr %alike)
  br i1 %checked, label %conditions, label %no

conditions:
  br label %condition
condition:
  %c = phi i64 [ 0, %conditions ], [ %c1, %condition.right ]
  %conditions.left = icmp ult i64 %c, %asked
  br i1 %conditions.left, label %condition.one, label %yes
condition.one:
  %ask = call ptr @next_object(ptr %cursor)
  %expected = call ptr @next_object(ptr %cursor)
  %found = call ptr @PyObject_Vectorcall(ptr %ask, ptr null, i64 0, ptr null)
  %none = icmp eq ptr %found, null
  br i1 %none, label %error, label %condition.found
condition.found:
  %still = call i1 @equal(ptr %found, ptr %expected)
  call void @Py_DecRef(ptr %found)
  br i1 %still, label %condition.right, label %no
condition.right:
  %c1 = add i64 %c, 1
  br label %condition
error:
  call void @PyErr_Clear()
  br label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether an object is True; it is given up. null: an error, which is forgotten.
define internal i1 @is_true(ptr %object) {
entry:
  %none = icmp eq ptr %object, null
  br i1 %none, label %error, label %ask
error:
  call void @PyErr_Clear()
  ret i1 false
ask:
  %yes = icmp eq ptr %object, @_Py_TrueStruct
  call void @Py_DecRef(ptr %object)
  ret i1 %yes
}

; Gives up objects [from, to) of the pool.
define internal void @drop(ptr %pool, i64 %from, i64 %to) {
entry:
  br label %each
each:
  %i = phi i64 [ %from, %entry ], [ %i1, %one ]
  %more = icmp ult i64 %i, %to
  br i1 %more, label %one, label %done
one:
  %object.p = getelementptr ptr, ptr %pool, i64 %i
  %object = load ptr, ptr %object.p
  call void @Py_DecRef(ptr %object)
  %i1 = add i64 %i, 1
  br label %each
done:
  ret void
}

; Makes what a call needs and runs its kernels: the result, or null with an error.
define internal ptr @run(ptr %torch, ptr %record, ptr %cursor, ptr %args, ptr %leading, ptr %pool, ptr %addresses, ptr %passed) {
entry:
  %tensors.p = getelementptr i64, ptr %record, i64 1
  %tensors = load i64, ptr %tensors.p
  %made.p = getelementptr i64, ptr %record, i64 8
  %made = load i64, ptr %made.p
  %results.p = getelementptr i64, ptr %record, i64 9
  %results = load i64, ptr %results.p
  %held.p = getelementptr i64, ptr %record, i64 10
  %held = load i64, ptr %held.p
  %steps.p = getelementptr i64, ptr %record, i64 11
  %steps = load i64, ptr %steps.p
  %made.end = add i64 %tensors, %made
  %held.end = add i64 %made.end, %held
  br label %operand

operand:
  %i = phi i64 [ 0, %entry ], [ %i1, %operand.one ]
  %operands.left = icmp ult i64 %i, %tensors
  br i1 %operands.left, label %operand.one, label %making
operand.one:
  %from = getelementptr ptr, ptr %args, i64 %i
  %operand.object = load ptr, ptr %from
  %to = getelementptr ptr, ptr %pool, i64 %i
  store ptr %operand.object, ptr %to
  %address.from = getelementptr i64, ptr %leading, i64 %i
  %operand.address = load i64, ptr %address.from
  %address.to = getelementptr i64, ptr %addresses, i64 %i
  store i64 %operand.address, ptr %address.to
  %i1 = add i64 %i, 1
  br label %operand

making:
  br label %make
make:
  %m = phi i64 [ %tensors, %making ], [ %m1, %make.done ]
  %making.left = icmp ult i64 %m, %made.end
  br i1 %making.left, label %make.one, label %holding
make.one:
  %maker = call ptr @next_object(ptr %cursor)
  %given = call ptr @next_object(ptr %cursor)
  %new = call ptr @PyObject_Call(ptr %maker, ptr %given, ptr null)
  %no.memory = icmp eq ptr %new, null
  br i1 %no.memory, label %failed, label %make.done
make.done:
  %m.p = getelementptr ptr, ptr %pool, i64 %m
  store ptr %new, ptr %m.p
  %new.address = call i64 @address(ptr %torch, ptr %new)
  %new.p = getelementptr i64, ptr %addresses, i64 %m
  store i64 %new.address, ptr %new.p
  %m1 = add i64 %m, 1
  br label %make

holding:
  br label %hold
hold:
  %h = phi i64 [ %made.end, %holding ], [ %h1, %hold.one ]
  %holding.left = icmp ult i64 %h, %held.end
  br i1 %holding.left, label %hold.one, label %running
hold.one:
  %kept = call ptr @next_object(ptr %cursor)
  %h.p = getelementptr ptr, ptr %pool, i64 %h
  store ptr %kept, ptr %h.p
  %kept.address = call i64 @next(ptr %cursor)
  %kept.p = getelementptr i64, ptr %addresses, i64 %h
  store i64 %kept.address, ptr %kept.p
  %h1 = add i64 %h, 1
  br label %hold

running:
  br label %step
step:
  %s = phi i64 [ 0, %running ], [ %s1, %step.done ]
  %steps.left = icmp ult i64 %s, %steps
  br i1 %steps.left, label %step.one, label %giving
step.one:
  %kernel = call ptr @next_object(ptr %cursor)
  %words = call ptr @next_object(ptr %cursor)
  %launch = call ptr @next_object(ptr %cursor)
  %counter = call ptr @next_object(ptr %cursor)
  %k = call i64 @next(ptr %cursor)
  %before = load i64, ptr %counter
  %now = add i64 %before, 1
  store i64 %now, ptr %counter
  %at = load ptr, ptr %cursor
  %python = icmp eq ptr %launch, null
  br i1 %python, label %step.python, label %step.native
step.native:
  call void @gather(ptr %cursor, i64 %k, ptr %addresses, ptr %passed)
  %status.n = call i64 %launch(ptr %words, ptr %passed)
  %launched = icmp eq i64 %status.n, 0
  br i1 %launched, label %step.done, label %step.judge
step.judge:
  %another = icmp eq i64 %status.n, -2
  br i1 %another, label %step.again, label %failed
step.again:
  store ptr %at, ptr %cursor
  br label %step.python
step.python:
  call void @gather(ptr %cursor, i64 %k, ptr %pool, ptr %passed)
  %answer = call ptr @PyObject_Vectorcall(ptr %kernel, ptr %passed, i64 %k, ptr null)
  %wrong = icmp eq ptr %answer, null
  br i1 %wrong, label %failed, label %step.answered
step.answered:
  call void @Py_DecRef(ptr %answer)
  br label %step.done
step.done:
  %s1 = add i64 %s, 1
  br label %step

failed:
  %made.so.far = phi i64 [ %m, %make.one ], [ %made.end, %step.judge ], [ %made.end, %step.python ]
  call void @drop(ptr %pool, i64 %tensors, i64 %made.so.far)
  ret ptr null

giving:
  %results.end = add i64 %tensors, %results
  call void @drop(ptr %pool, i64 %results.end, i64 %made.end)
  %first.p = getelementptr ptr, ptr %pool, i64 %tensors
  %single = icmp eq i64 %results, 1
  br i1 %single, label %one.result, label %several
one.result:
  %first = load ptr, ptr %first.p
  ret ptr %first
several:
  %tuple = call ptr @PyTuple_New(i64 %results)
  %no.tuple = icmp eq ptr %tuple, null
  br i1 %no.tuple, label %lost, label %put
lost:
  call void @drop(ptr %pool, i64 %tensors, i64 %results.end)
  ret ptr null
put:
  %r = phi i64 [ 0, %several ], [ %r1, %put.one ]
  %putting = icmp ult i64 %r, %results
  br i1 %putting, label %put.one, label %full
put.one:
  %r.p = getelementptr ptr, ptr %first.p, i64 %r
  %result = load ptr, ptr %r.p
  %status = call i32 @PyTuple_SetItem(ptr %tuple, i64 %r, ptr %result)
  %r1 = add i64 %r, 1
  br label %put
full:
  ret ptr %tuple
}

define ptr @tl_again_v1(ptr %self, ptr %args, i64 %count) {
entry:
  %cursor = alloca ptr
  %words = getelementptr i8, ptr %self, i64 32
  %torch = load ptr, ptr %words
  %slots.p = getelementptr ptr, ptr %words, i64 1
  %slots = load ptr, ptr %slots.p
  %leading = alloca i64, i64 %count, align 16
  %looked = call { i64, i64, i64 } @look(ptr %torch, ptr %args, i64 %count, ptr %leading)
  %tensors = extractvalue { i64, i64, i64 } %looked, 0
  %hash = extractvalue { i64, i64, i64 } %looked, 1
  %low = extractvalue { i64, i64, i64 } %looked, 2
  %slot = lshr i64 %hash, 54
  %slot.p = getelementptr ptr, ptr %slots, i64 %slot
  %head = load ptr, ptr %slot.p
  %empty = icmp eq ptr %head, null
  br i1 %empty, label %unknown, label %several
several:
  call void @Py_IncRef(ptr %head) ; and so of all that follow it, whatever becomes of the slot
  br label %found
found:
  %object = phi ptr [ %head, %several ], [ %following, %another ]
  %record = getelementptr i8, ptr %object, i64 32
  %count.r = load i64, ptr %record
  %tensors.p = getelementptr i64, ptr %record, i64 1
  %tensors.r = load i64, ptr %tensors.p
  %mask.p = getelementptr i64, ptr %record, i64 4
  %mask = load i64, ptr %mask.p
  %all = icmp eq i64 %count, %count.r
  %lead = icmp eq i64 %tensors, %tensors.r
  %under = and i64 %low, %mask
  %aligned = icmp eq i64 %under, 0
  %two = and i1 %all, %lead
  %three = and i1 %two, %aligned
  br i1 %three, label %ask, label %another
ask:
  %lists = getelementptr i64, ptr %record, i64 19
  store ptr %lists, ptr %cursor
  %pool.p = getelementptr i64, ptr %record, i64 2
  %pool.size = load i64, ptr %pool.p
  %room.p = getelementptr i64, ptr %record, i64 3
  %room = load i64, ptr %room.p
  %pool = alloca ptr, i64 %pool.size, align 16
  %addresses = alloca i64, i64 %pool.size, align 16
  %passed = alloca ptr, i64 %room, align 16
  %same = call i1 @holds(ptr %record, ptr %cursor, ptr %args, ptr %leading, ptr %passed)
  br i1 %same, label %known, label %another
known:
  %result = call ptr @run(ptr %torch, ptr %record, ptr %cursor, ptr %args, ptr %leading, ptr %pool, ptr %addresses, ptr %passed)
  call void @Py_DecRef(ptr %head)
  ret ptr %result
another:
  %following.p = getelementptr ptr, ptr %record, i64 17
  %following = load ptr, ptr %following.p
  %last = icmp eq ptr %following, null
  br i1 %last, label %none, label %found
none:
  call void @Py_DecRef(ptr %head)
  br label %unknown
unknown:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}

; The ENTRY of a function, or null.
define internal ptr @entry_of(ptr %function) {
entry:
  %address = ptrtoint ptr %function to i64
  %aligned = lshr i64 %address, 4
  br label %probe
probe:
  %place = phi i64 [ %aligned, %entry ], [ %following, %another ]
  %slot = and i64 %place, 255
  %first = shl i64 %slot, 1
  %found.p = getelementptr i64, ptr @tl_entries, i64 %first
  %found = load i64, ptr %found.p
  %same = icmp eq i64 %found, %address
  br i1 %same, label %yes, label %look
look:
  %empty = icmp eq i64 %found, 0
  br i1 %empty, label %no, label %another
another:
  %following = add i64 %place, 1
  br label %probe
yes:
  %entry.p = getelementptr i64, ptr %found.p, i64 1
  %words = load ptr, ptr %entry.p
  ret ptr %words
no:
  ret ptr null
}

; %values[p] of each parameter, from `given` arguments without a name, those that `names` tells, and defaults; false where this
; is no call of a function with these parameters, or of a known call.
define internal i1 @bind(ptr %words, ptr %args, i64 %given, ptr %names, ptr %values) {
entry:
  %positional.p = getelementptr i64, ptr %words, i64 1
  %positional = load i64, ptr %positional.p
  %parameters.p = getelementptr i64, ptr %words, i64 2
  %parameters = load i64, ptr %parameters.p
  %count.p = getelementptr i64, ptr %words, i64 3
  %count = load i64, ptr %count.p
  %table = getelementptr i64, ptr %words, i64 4
  %many = icmp ugt i64 %given, %positional
  br i1 %many, label %no, label %fill

fill:
  %f = phi i64 [ 0, %entry ], [ %f1, %filled ]
  %filling = icmp ult i64 %f, %parameters
  br i1 %filling, label %fill.one, label %named
fill.one:
  %f.to = getelementptr ptr, ptr %values, i64 %f
  %is.given = icmp ult i64 %f, %given
  br i1 %is.given, label %fill.given, label %fill.default
fill.given:
  %f.from = getelementptr ptr, ptr %args, i64 %f
  br label %filled
fill.default:
  %f.pair = shl i64 %f, 1
  %f.name = getelementptr ptr, ptr %table, i64 %f.pair
  %f.default = getelementptr ptr, ptr %f.name, i64 1
  br label %filled
filled:
  %from = phi ptr [ %f.from, %fill.given ], [ %f.default, %fill.default ]
  %value = load ptr, ptr %from
  store ptr %value, ptr %f.to
  %f1 = add i64 %f, 1
  br label %fill

named:
  %no.names = icmp eq ptr %names, null
  br i1 %no.names, label %judge, label %sized
sized:
  %number = call i64 @PyTuple_Size(ptr %names)
  br label %name
name:
  %n = phi i64 [ 0, %sized ], [ %n1, %put ]
  %naming = icmp ult i64 %n, %number
  br i1 %naming, label %name.one, label %judge
name.one:
  %name.object = call ptr @PyTuple_GetItem(ptr %names, i64 %n)
  br label %search
search:
  %p = phi i64 [ %given, %name.one ], [ %p1, %search.next ]
  %searching = icmp ult i64 %p, %parameters
  br i1 %searching, label %search.one, label %no
search.one:
  %pair = shl i64 %p, 1
  %name.p = getelementptr ptr, ptr %table, i64 %pair
  %wanted = load ptr, ptr %name.p
  %is.name = icmp eq ptr %wanted, %name.object
  br i1 %is.name, label %put, label %search.next
search.next:
  %p1 = add i64 %p, 1
  br label %search
put:
  %place = add i64 %given, %n
  %named.from = getelementptr ptr, ptr %args, i64 %place
  %named.value = load ptr, ptr %named.from
  %named.to = getelementptr ptr, ptr %values, i64 %p
  store ptr %named.value, ptr %named.to
  %n1 = add i64 %n, 1
  br label %name

judge:
  br label %argument
argument:
  %a = phi i64 [ 0, %judge ], [ %a1, %argument.there ]
  %asking = icmp ult i64 %a, %count
  br i1 %asking, label %argument.one, label %rest
argument.one:
  %a.p = getelementptr ptr, ptr %values, i64 %a
  %a.value = load ptr, ptr %a.p
  %missing = icmp eq ptr %a.value, null
  br i1 %missing, label %no, label %argument.there
argument.there:
  %a1 = add i64 %a, 1
  br label %argument
rest:
  %r = phi i64 [ %count, %argument ], [ %r1, %rest.same ]
  %resting = icmp ult i64 %r, %parameters
  br i1 %resting, label %rest.one, label %yes
rest.one:
  %r.p = getelementptr ptr, ptr %values, i64 %r
  %r.value = load ptr, ptr %r.p
  %r.pair = shl i64 %r, 1
  %r.name = getelementptr ptr, ptr %table, i64 %r.pair
  %r.default.p = getelementptr ptr, ptr %r.name, i64 1
  %r.default = load ptr, ptr %r.default.p
  %at.default = icmp eq ptr %r.value, %r.default
  br i1 %at.default, label %rest.same, label %no
rest.same:
  %r1 = add i64 %r, 1
  br label %rest
yes:
  ret i1 true
no:
  ret i1 false
}

define ptr @tl_enter_v1(ptr %function, ptr %args, i64 %flagged, ptr %names) {
entry:
  %words = call ptr @entry_of(ptr %function)
  %none = icmp eq ptr %words, null
  br i1 %none, label %python, label %entered
entered:
  %self = load ptr, ptr %words
  %unknown = icmp eq ptr %self, null
  br i1 %unknown, label %python, label %bound
bound:
  %given = and i64 %flagged, 9223372036854775807 ; PY_VECTORCALL_ARGUMENTS_OFFSET is the highest bit
  %parameters.p = getelementptr i64, ptr %words, i64 2
  %parameters = load i64, ptr %parameters.p
  %count.p = getelementptr i64, ptr %words, i64 3
  %count = load i64, ptr %count.p
  %values = alloca ptr, i64 %parameters, align 16
  %fits = call i1 @bind(ptr %words, ptr %args, i64 %given, ptr %names, ptr %values)
  br i1 %fits, label %ask, label %python
ask:
  %answer = call ptr @tl_again_v1(ptr %self, ptr %values, i64 %count)
  %another = icmp eq ptr %answer, @_Py_NoneStruct
  br i1 %another, label %forget, label %known
forget:
  call void @Py_DecRef(ptr %answer)
  br label %python
known:
  ret ptr %answer
python:
  %result = call ptr @_PyFunction_Vectorcall(ptr %function, ptr %args, i64 %flagged, ptr %names)
  ret ptr %result
}

!llvm.module.flags = !{!0}
!0 = !{i32 8, !"PIC Level", i32 2}
