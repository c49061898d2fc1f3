; Kernels for the tests, in the form that launches call: i32 (ptr args, ptr dims, i64 begin, i64 end).

target triple = "x86_64-unknown-linux-gnu"

@table = internal constant [4 x float] [float 1.0, float 2.0, float 4.0, float 8.0]
@counter = global i64 5
@zeroes = internal global [64 x i64] zeroinitializer, align 64

declare float @expf(float)
declare double @pow(double, double)
declare void @tl_print(i64, ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i32 @nothing(ptr %args, ptr %dims, i64 %begin, i64 %end) {
  ret i32 0
}

; out[b] = b * 3 + dims[0], for each block b: int64
define i32 @fill(ptr %args, ptr %dims, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  %add = load i64, ptr %dims
  br label %loop
loop:
  %b = phi i64 [ %begin, %entry ], [ %b1, %loop ]
  %x = mul i64 %b, 3
  %y = add i64 %x, %add
  %p = getelementptr i64, ptr %out, i64 %b
  %old = load i64, ptr %p
  %new = add i64 %old, %y
  store i64 %new, ptr %p
  %b1 = add i64 %b, 1
  %more = icmp slt i64 %b1, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}

; out[b] = number of steps of a slow dependent chain (about 2 us): work that the pool shares
define i32 @slow(ptr %args, ptr %dims, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  br label %loop
loop:
  %b = phi i64 [ %begin, %entry ], [ %b1, %next ]
  br label %spin
spin:
  %i = phi i64 [ 0, %loop ], [ %i1, %spin ]
  %v = phi double [ 1.0, %loop ], [ %v1, %spin ]
  %v1 = fdiv double 3.0, %v
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, 500
  br i1 %again, label %spin, label %next
next:
  %k = fptosi double %v1 to i64
  %s = add i64 %k, %i1
  %p = getelementptr i64, ptr %out, i64 %b
  store i64 %s, ptr %p
  %b1 = add i64 %b, 1
  %more = icmp slt i64 %b1, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}

; out[b] = where the pointers lie, on the stack of the thread that runs block b; as slow
define i32 @who(ptr %args, ptr %dims, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  br label %loop
loop:
  %b = phi i64 [ %begin, %entry ], [ %b1, %next ]
  br label %spin
spin:
  %i = phi i64 [ 0, %loop ], [ %i1, %spin ]
  %v = phi double [ 1.0, %loop ], [ %v1, %spin ]
  %v1 = fdiv double 3.0, %v
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, 500
  br i1 %again, label %spin, label %next
next:
  %k = fptosi double %v1 to i64
  %stack = ptrtoint ptr %args to i64
  %none = sub i64 %k, 1
  %s = add i64 %stack, %none
  %p = getelementptr i64, ptr %out, i64 %b
  store i64 %s, ptr %p
  %b1 = add i64 %b, 1
  %more = icmp slt i64 %b1, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}

; Fills its scratch (dims[0] bytes, in the slot after one pointer) with a byte that depends on the block, and checks it;
; out[b] = its last byte. Result 1 if the scratch is not aligned to 64, 2 if another thread wrote to it.
define i32 @scratch(ptr %args, ptr %dims, i64 %begin, i64 %end) {
entry:
  %out = load ptr, ptr %args
  %slot = getelementptr ptr, ptr %args, i64 1
  %area = load ptr, ptr %slot
  %bytes = load i64, ptr %dims
  %address = ptrtoint ptr %area to i64
  %low = and i64 %address, 63
  %odd = icmp ne i64 %low, 0
  br i1 %odd, label %unaligned, label %loop
unaligned:
  ret i32 1
loop:
  %b = phi i64 [ %begin, %entry ], [ %b1, %good ]
  %value = trunc i64 %b to i8
  call void @llvm.memset.p0.i64(ptr %area, i8 %value, i64 %bytes, i1 false)
  br label %check
check:
  %i = phi i64 [ 0, %loop ], [ %i1, %ok ]
  %q = getelementptr i8, ptr %area, i64 %i
  %found = load volatile i8, ptr %q
  %same = icmp eq i8 %found, %value
  br i1 %same, label %ok, label %mixed
mixed:
  ret i32 2
ok:
  %i1 = add i64 %i, 1
  %rest = icmp slt i64 %i1, %bytes
  br i1 %rest, label %check, label %good
good:
  %p = getelementptr i8, ptr %out, i64 %b
  store i8 %found, ptr %p
  %b1 = add i64 %b, 1
  %more = icmp slt i64 %b1, %end
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}

; out[0..3] = the float scalars dims[0] (double bits) and dims[1], pow of them, expf(table[1])
define i32 @scalars(ptr %args, ptr %dims, i64 %begin, i64 %end) {
  %out = load ptr, ptr %args
  %x = load double, ptr %dims
  %p1 = getelementptr i64, ptr %dims, i64 1
  %n = load i64, ptr %p1
  %y = sitofp i64 %n to double
  %z = call double @pow(double %x, double %y)
  %t = getelementptr [4 x float], ptr @table, i64 0, i64 %n
  %e = load float, ptr %t
  %f = call float @expf(float %e)
  %g = fpext float %f to double
  store double %x, ptr %out
  %o1 = getelementptr double, ptr %out, i64 1
  store double %y, ptr %o1
  %o2 = getelementptr double, ptr %out, i64 2
  store double %z, ptr %o2
  %o3 = getelementptr double, ptr %out, i64 3
  store double %g, ptr %o3
  ret i32 0
}

; out[0] = counter before this call (data), out[1] = zeroes[0] before (bss); both then count up
define i32 @remember(ptr %args, ptr %dims, i64 %begin, i64 %end) {
  %out = load ptr, ptr %args
  %a = load i64, ptr @counter
  %a1 = add i64 %a, 1
  store i64 %a1, ptr @counter
  store i64 %a, ptr %out
  %b = load i64, ptr @zeroes
  %b1 = add i64 %b, 1
  store i64 %b1, ptr @zeroes
  %p = getelementptr i64, ptr %out, i64 1
  store i64 %b, ptr %p
  ret i32 0
}

; Result dims[0] from the block numbered 7
define i32 @fails(ptr %args, ptr %dims, i64 %begin, i64 %end) {
  %code = load i64, ptr %dims
  %low = icmp sle i64 %begin, 7
  %high = icmp sgt i64 %end, 7
  %here = and i1 %low, %high
  %narrow = trunc i64 %code to i32
  %r = select i1 %here, i32 %narrow, i32 0
  ret i32 %r
}

; Prints the first four floats of its argument, at site 1
define i32 @prints(ptr %args, ptr %dims, i64 %begin, i64 %end) {
  %data = load ptr, ptr %args
  call void @tl_print(i64 1, ptr %data, i64 4)
  ret i32 0
}

!llvm.module.flags = !{!0}
!0 = !{i32 8, !"PIC Level", i32 2}
