; Prepared calls without Python (prepared.py): a METH_FASTCALL function that reads the addresses of torch tensors, and one for
; native callers that know them; they write them into the jobs that `prepare` packed, and run those on the pool (pool.ll).
; Linux, x86-64, CPython's own objects.
;
; SELF (a bytes object; 8-byte words from byte 32)
;     0 ptr  torch      the types Tensor and Parameter, and what reads a tensor into a DLTensor; null before torch is known
;     1 ptr  python     the same call in Python: takes what this function does not recognise
;     2 ptr  failed     Python function of (launch, code): raises what a kernel's code other than 0 means
;     3 ptr  pool       memory of the pool
;     4 ptr  run        @tl_run of pool.ll
;     5 i64  room       bytes of the longest job
;     6 i64  tensors    then two words for each: a mask, and what an address has under it; mask -1: not used, may be None
;     7 i64  result     which argument the call returns; -1: none
;     8 i64  launches   after the tensors; each: bytes of the job, number of pointers, the tensor of each, the job

target triple = "x86_64-unknown-linux-gnu"

declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @PyErr_Clear()
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
@_Py_NoneStruct = external global i8

; Runs a call on the addresses of its tensors: 0; -1: a kernel failed, and Python's error says so; -2: it is another call, and
; nothing has happened. Python's lock is held.
define i64 @tl_launch_cpu_v1(ptr %words, ptr %addresses) {
entry:
  %tensors.p = getelementptr i64, ptr %words, i64 6
  %tensors = load i64, ptr %tensors.p
  %pool.p = getelementptr i64, ptr %words, i64 3
  %pool = load ptr, ptr %pool.p
  %threads.p = getelementptr i8, ptr %pool, i64 264
  %threads = load i64, ptr %threads.p
  %started = icmp sgt i64 %threads, 0
  %places = getelementptr i64, ptr %words, i64 9
  br i1 %started, label %each, label %another

each:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %tensors
  br i1 %more, label %look, label %launches
look:
  %place = shl i64 %i, 1
  %mask.p = getelementptr i64, ptr %places, i64 %place
  %rest.p = getelementptr i64, ptr %mask.p, i64 1
  %mask = load i64, ptr %mask.p
  %rest = load i64, ptr %rest.p
  %address.p = getelementptr i64, ptr %addresses, i64 %i
  %address = load i64, ptr %address.p
  %under = and i64 %address, %mask
  %same = icmp eq i64 %under, %rest
  %unused = icmp eq i64 %mask, -1
  %good = or i1 %same, %unused
  br i1 %good, label %next, label %another
next:
  %i1 = add i64 %i, 1
  br label %each
another:
  ret i64 -2

launches:
  %room.p = getelementptr i64, ptr %words, i64 5
  %room = load i64, ptr %room.p
  %job = alloca i8, i64 %room, align 16
  %told = alloca [2 x ptr], align 16
  %run.p = getelementptr i64, ptr %words, i64 4
  %run = load ptr, ptr %run.p
  %number.p = getelementptr i64, ptr %words, i64 8
  %number = load i64, ptr %number.p
  %spread = shl i64 %tensors, 1
  %first = getelementptr i64, ptr %places, i64 %spread
  %lock = call ptr @PyEval_SaveThread()
  br label %launch
launch:
  %n = phi i64 [ 0, %launches ], [ %n1, %ran ]
  %at = phi ptr [ %first, %launches ], [ %following, %ran ]
  %left = icmp ult i64 %n, %number
  br i1 %left, label %pack, label %done
pack:
  %bytes = load i64, ptr %at
  %pointers.p = getelementptr i64, ptr %at, i64 1
  %pointers = load i64, ptr %pointers.p
  %indices = getelementptr i64, ptr %at, i64 2
  %template = getelementptr i64, ptr %indices, i64 %pointers
  %length = lshr i64 %bytes, 3
  br label %copy
copy:
  %c = phi i64 [ 0, %pack ], [ %c1, %copy ]
  %from = getelementptr i64, ptr %template, i64 %c
  %word = load i64, ptr %from
  %into = getelementptr i64, ptr %job, i64 %c
  store i64 %word, ptr %into
  %c1 = add i64 %c, 1
  %longer = icmp ult i64 %c1, %length
  br i1 %longer, label %copy, label %fill
fill:
  %p = phi i64 [ 0, %copy ], [ %p1, %put ]
  %lacks = icmp ult i64 %p, %pointers
  br i1 %lacks, label %put, label %go
put:
  %index.p = getelementptr i64, ptr %indices, i64 %p
  %index = load i64, ptr %index.p
  %pointer.p = getelementptr i64, ptr %addresses, i64 %index
  %pointer = load i64, ptr %pointer.p
  %slot = add i64 %p, 6
  %slot.p = getelementptr i64, ptr %job, i64 %slot
  store i64 %pointer, ptr %slot.p
  %p1 = add i64 %p, 1
  br label %fill
go:
  %code = call i64 %run(ptr %pool, ptr %job)
  %well = icmp eq i64 %code, 0
  br i1 %well, label %ran, label %error
ran:
  %following = getelementptr i64, ptr %template, i64 %length
  %n1 = add i64 %n, 1
  br label %launch

error:
  call void @PyEval_RestoreThread(ptr %lock)
  %failed.p = getelementptr i64, ptr %words, i64 2
  %failed = load ptr, ptr %failed.p
  %told.1 = getelementptr ptr, ptr %told, i64 1
  %which.object = call ptr @PyLong_FromLongLong(i64 %n)
  %code.object = call ptr @PyLong_FromLongLong(i64 %code)
  store ptr %which.object, ptr %told
  store ptr %code.object, ptr %told.1
  %nothing = call ptr @PyObject_Vectorcall(ptr %failed, ptr %told, i64 2, ptr null)
  call void @Py_DecRef(ptr %which.object)
  call void @Py_DecRef(ptr %code.object)
  ret i64 -1
done:
  call void @PyEval_RestoreThread(ptr %lock)
  ret i64 0
}

define ptr @tl_prepared_cpu_v1(ptr %self, ptr %args, i64 %count) {
entry:
  %tensor = alloca [48 x i8], align 16
  %words = getelementptr i8, ptr %self, i64 32
  %torch = load ptr, ptr %words
  %python.p = getelementptr i64, ptr %words, i64 1
  %python = load ptr, ptr %python.p
  %tensors.p = getelementptr i64, ptr %words, i64 6
  %tensors = load i64, ptr %tensors.p
  %addresses = alloca i64, i64 %tensors, align 16
  %parameter.p = getelementptr ptr, ptr %torch, i64 1
  %reader.p = getelementptr ptr, ptr %torch, i64 2
  %tensor.type = load ptr, ptr %torch
  %parameter.type = load ptr, ptr %parameter.p
  %reader = load ptr, ptr %reader.p
  %all = icmp eq i64 %count, %tensors
  %places = getelementptr i64, ptr %words, i64 9
  br i1 %all, label %each, label %slow

each:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %more = icmp ult i64 %i, %tensors
  br i1 %more, label %look, label %launch
look:
  %place = shl i64 %i, 1
  %mask.p = getelementptr i64, ptr %places, i64 %place
  %mask = load i64, ptr %mask.p
  %unused = icmp eq i64 %mask, -1
  br i1 %unused, label %next, label %ask
ask:
  %object.p = getelementptr ptr, ptr %args, i64 %i
  %object = load ptr, ptr %object.p
  %type.p = getelementptr i8, ptr %object, i64 8
  %type = load ptr, ptr %type.p
  %plain = icmp eq ptr %type, %tensor.type
  %wrapped = icmp eq ptr %type, %parameter.type
  %known = or i1 %plain, %wrapped
  br i1 %known, label %read, label %slow
read:
  %status = call i32 %reader(ptr %object, ptr %tensor)
  %is.read = icmp eq i32 %status, 0
  br i1 %is.read, label %judge, label %unfit
judge:
  %device.p = getelementptr i8, ptr %tensor, i64 8
  %device = load i32, ptr %device.p
  %here = icmp eq i32 %device, 1
  %offset.p = getelementptr i8, ptr %tensor, i64 40
  %offset = load i64, ptr %offset.p
  %data = load i64, ptr %tensor
  %address = add i64 %data, %offset
  br i1 %here, label %next, label %slow
next:
  %found = phi i64 [ 0, %look ], [ %address, %judge ]
  %to = getelementptr i64, ptr %addresses, i64 %i
  store i64 %found, ptr %to
  %i1 = add i64 %i, 1
  br label %each

launch:
  %done = call i64 @tl_launch_cpu_v1(ptr %words, ptr %addresses)
  %well = icmp eq i64 %done, 0
  br i1 %well, label %leave, label %not.well
not.well:
  %another = icmp eq i64 %done, -2
  br i1 %another, label %slow, label %failed
failed:
  ret ptr null
leave:
  %result.p = getelementptr i64, ptr %words, i64 7
  %result = load i64, ptr %result.p
  %none = icmp slt i64 %result, 0
  %given.p = getelementptr ptr, ptr %args, i64 %result
  br i1 %none, label %return, label %given
given:
  %given.object = load ptr, ptr %given.p
  br label %return
return:
  %returned = phi ptr [ @_Py_NoneStruct, %leave ], [ %given.object, %given ]
  call void @Py_IncRef(ptr %returned)
  ret ptr %returned

unfit:
  call void @PyErr_Clear()
  br label %slow
slow:
  %slow.result = call ptr @PyObject_Vectorcall(ptr %python, ptr %args, i64 %count, ptr null)
  ret ptr %slow.result
}

!llvm.module.flags = !{!0}
!0 = !{i32 8, !"PIC Level", i32 2}
