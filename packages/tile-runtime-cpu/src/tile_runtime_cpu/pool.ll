; The native worker pool of tile-runtime-cpu. pool.py compiles this text once, maps it and starts Python daemon threads
; that each stay in @tl_worker; @tl_run is what every launch calls. Linux, x86-64.
;
; POOL (memory of pool.py; one cache line per group, so that claiming work does not disturb those who wait)
;     0 i32 state     odd: a job is open; even: none. Changes by one at each opening and closing (futex)
;     4 i32 sleepers  workers that wait in the kernel for `state` to change
;     8 i32 stop      1: workers leave
;    64 i64 next      first block that nobody has claimed
;   128 i32 active    workers inside a job (futex)
;   132 i32 waiting   1: the caller waits in the kernel for `active` to become 0
;   192 ptr job       the open job
;   200 i64 end       its number of blocks
;   208 i64 chunk     blocks claimed at a time
;   216 i32 result    first result of a block that is not 0
;   220 i32 most      workers that may take part
;   256 i32 busy      1: a caller has the pool; other callers run their job alone
;   264 i64 threads   workers + 1; 0: not started
;   272 i64 inline    ticks of estimated work below which a job is not shared
;   280 i64 spin      ticks that a waiting thread spins before it sleeps
;   288 i64 wake      ticks of estimated work for which sleeping workers are woken in any case
;   296 i64 last      when the last launch ended
;   304 i32 cpu       the processor that workers keep off, as RDTSCP numbers it; -1: none yet
;   308 i32 movable   number of entries in `tids`; 0: leave placing to the system
;   312 ptr asked     `i32 asked()` tells how many threads the user wants; null: all
;   320 allowed       128 bytes: the processors that workers may use (cpu_set_t)
;   448 scratch       128 bytes: `allowed` without `cpu`
;   576 tids          i32 each: the workers' thread ids
; JOB (bytes that the launcher packs; not changed here)
;     0 ptr fn   8 ptr estimate (i64: ticks per block, 0: unknown)   16 i64 blocks   24 i64 scratch bytes
;    32 i64 number of pointers   40 reserved   48 the pointers, then the integers
;
; Why a late worker is harmless: it counts itself in `active` before it looks at `state`, and the caller closes `state`
; before it looks at `active` (all sequentially consistent). So either the worker sees the job closed and leaves, or the
; caller sees the worker and waits; the job's memory outlives everyone who reads it.

target triple = "x86_64-unknown-linux-gnu"

declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i64 @llvm.readcyclecounter()

; Calls blocks [begin, end) if %pool is null, else claims chunks from the pool until none is left.
; Gives each call of the job's function its pointers with a scratch area in the extra slot. Stores the first result
; that is not 0 in %result. Returns the number of blocks that this thread ran.
define internal i64 @participate(ptr %pool, ptr %job, i64 %begin, i64 %end, ptr %result) noinline {
entry:
  %fn = load ptr, ptr %job, align 8
  %scratch.p = getelementptr i8, ptr %job, i64 24
  %bytes = load i64, ptr %scratch.p, align 8
  %count.p = getelementptr i8, ptr %job, i64 32
  %count = load i64, ptr %count.p, align 8
  %pointers = getelementptr i8, ptr %job, i64 48
  %dims = getelementptr ptr, ptr %pointers, i64 %count
  %slots = add i64 %count, 1
  %args = alloca ptr, i64 %slots, align 16
  br label %copy
copy:
  %i = phi i64 [ 0, %entry ], [ %i1, %copy.one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %copy.one, label %room
copy.one:
  %from = getelementptr ptr, ptr %pointers, i64 %i
  %pointer = load ptr, ptr %from, align 8
  %to = getelementptr ptr, ptr %args, i64 %i
  store ptr %pointer, ptr %to, align 8
  %i1 = add i64 %i, 1
  br label %copy
room:
  %big = icmp ugt i64 %bytes, 65536
  br i1 %big, label %heap, label %stack
heap:
  %up = add i64 %bytes, 63
  %rounded = and i64 %up, -64
  %memory = call ptr @aligned_alloc(i64 64, i64 %rounded)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %no.memory, label %go
no.memory:
  %ignored = cmpxchg ptr %result, i32 0, i32 -12 seq_cst seq_cst
  ret i64 0
stack:
  %area = alloca i8, i64 %bytes, align 64
  br label %go
go:
  %owned = phi ptr [ %memory, %heap ], [ null, %stack ]
  %scratch = phi ptr [ %memory, %heap ], [ %area, %stack ]
  %extra = getelementptr ptr, ptr %args, i64 %count
  store ptr %scratch, ptr %extra, align 8
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %one, label %shared
one:
  %r1 = call i32 %fn(ptr %args, ptr %dims, i64 %begin, i64 %end)
  store i32 %r1, ptr %result, align 4
  %length = sub i64 %end, %begin
  br label %done
shared:
  %next.p = getelementptr i8, ptr %pool, i64 64
  %chunk.p = getelementptr i8, ptr %pool, i64 208
  %chunk = load i64, ptr %chunk.p, align 8
  br label %claim
claim:
  %ran = phi i64 [ 0, %shared ], [ %ran1, %work ]
  %b = atomicrmw add ptr %next.p, i64 %chunk monotonic
  %left = icmp slt i64 %b, %end
  br i1 %left, label %work, label %done
work:
  %e0 = add i64 %b, %chunk
  %over = icmp sgt i64 %e0, %end
  %e = select i1 %over, i64 %end, i64 %e0
  %r = call i32 %fn(ptr %args, ptr %dims, i64 %b, i64 %e)
  %n = sub i64 %e, %b
  %ran1 = add i64 %ran, %n
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %failed, label %claim
failed:
  %ignored2 = cmpxchg ptr %result, i32 0, i32 %r seq_cst seq_cst
  store atomic i64 %end, ptr %next.p monotonic, align 8
  br label %done
done:
  %total = phi i64 [ %length, %one ], [ %ran, %claim ], [ %ran1, %failed ]
  %is.owned = icmp ne ptr %owned, null
  br i1 %is.owned, label %release, label %leave
release:
  call void @free(ptr %owned)
  br label %leave
leave:
  ret i64 %total
}

; Runs all blocks in this thread and renews the estimate. Returns the result.
define internal i64 @run_alone(ptr %job, i64 %begin, i64 %end) {
  %result = alloca i32, align 4
  store i32 0, ptr %result, align 4
  %t0 = call i64 @llvm.readcyclecounter()
  %ran = call i64 @participate(ptr null, ptr %job, i64 %begin, i64 %end, ptr %result)
  %t1 = call i64 @llvm.readcyclecounter()
  %ticks = sub i64 %t1, %t0
  call void @renew(ptr %job, i64 %ticks, i64 %ran)
  %r = load i32, ptr %result, align 4
  %wide = sext i32 %r to i64
  ret i64 %wide
}

; Runs all blocks in this thread, of a job that could not be shared: nobody asks how long it took.
define internal i64 @run_unshared(ptr %job, i64 %end) {
  %result = alloca i32, align 4
  store i32 0, ptr %result, align 4
  %ran = call i64 @participate(ptr null, ptr %job, i64 0, i64 %end, ptr %result)
  %r = load i32, ptr %result, align 4
  %wide = sext i32 %r to i64
  ret i64 %wide
}

; Moves the job's estimate a quarter of the way to what was measured, so that one disturbed run does not decide the next.
define internal void @renew(ptr %job, i64 %ticks, i64 %ran) {
  %p.p = getelementptr i8, ptr %job, i64 8
  %p = load ptr, ptr %p.p, align 8
  %any = icmp sgt i64 %ran, 0
  br i1 %any, label %measure, label %leave
measure:
  %each0 = sdiv i64 %ticks, %ran
  %low = icmp slt i64 %each0, 1
  %each = select i1 %low, i64 1, i64 %each0
  %old = load atomic i64, ptr %p monotonic, align 8
  %first = icmp eq i64 %old, 0
  %three = mul i64 %old, 3
  %sum = add i64 %three, %each
  %mixed = sdiv i64 %sum, 4
  %mixed.low = icmp slt i64 %mixed, 1
  %mixed1 = select i1 %mixed.low, i64 1, i64 %mixed
  %new = select i1 %first, i64 %each, i64 %mixed1
  store atomic i64 %new, ptr %p monotonic, align 8
  br label %leave
leave:
  ret void
}

; Runs a job to its end. Returns 0, the first result of a block that is not 0, or -12 if scratch memory is lacking.
define i64 @tl_run(ptr %pool, ptr %job) {
entry:
  %n.p = getelementptr i8, ptr %job, i64 16
  %n = load i64, ptr %n.p, align 8
  %threads.p = getelementptr i8, ptr %pool, i64 264
  %all = load i64, ptr %threads.p, align 8
  %few = icmp slt i64 %n, 2
  %single = icmp slt i64 %all, 2
  %no.pool = or i1 %few, %single
  br i1 %no.pool, label %unshared, label %estimate
unshared:
  %ru = call i64 @run_unshared(ptr %job, i64 %n)
  br i1 %single, label %unshared.done, label %unshared.end
unshared.end:
  call void @note_end(ptr %pool)
  br label %unshared.done
unshared.done:
  ret i64 %ru
alone:
  %begin.a = phi i64 [ %begin, %judge ], [ %begin, %burst ], [ %begin, %wanted ], [ %begin, %claim.pool ]
  %ra = call i64 @run_alone(ptr %job, i64 %begin.a, i64 %n)
  call void @note_end(ptr %pool)
  ret i64 %ra
estimate:
  %est.pp = getelementptr i8, ptr %job, i64 8
  %est.p = load ptr, ptr %est.pp, align 8
  %est0 = load atomic i64, ptr %est.p monotonic, align 8
  %unknown = icmp eq i64 %est0, 0
  br i1 %unknown, label %sample, label %judge
sample:
  %rs = call i64 @run_alone(ptr %job, i64 0, i64 1)
  %rs.bad = icmp ne i64 %rs, 0
  br i1 %rs.bad, label %give.up, label %judge
give.up:
  ret i64 %rs
judge:
  %begin = phi i64 [ 0, %estimate ], [ 1, %sample ]
  %est = load atomic i64, ptr %est.p monotonic, align 8
  %left = sub i64 %n, %begin
  %work = mul i64 %est, %left
  %inline.p = getelementptr i8, ptr %pool, i64 272
  %inline = load i64, ptr %inline.p, align 8
  %small = icmp sle i64 %work, %inline
  br i1 %small, label %alone, label %rested
rested:
  ; Waking a thread can cost more than it brings (30 us for the caller where a virtual CPU has halted). So sleepers are
  ; woken for large work, and for smaller work in a burst of launches, whose later ones then find them awake.
  %sleepers.p = getelementptr i8, ptr %pool, i64 4
  %resting = load atomic i32, ptr %sleepers.p monotonic, align 4
  %awake = icmp eq i32 %resting, 0
  br i1 %awake, label %share, label %large
large:
  %wake.p = getelementptr i8, ptr %pool, i64 288
  %wake = load i64, ptr %wake.p, align 8
  %worthy = icmp sgt i64 %work, %wake
  br i1 %worthy, label %share, label %burst
burst:
  %last.p = getelementptr i8, ptr %pool, i64 296
  %last = load atomic i64, ptr %last.p monotonic, align 8
  %now = call i64 @llvm.readcyclecounter()
  %since = sub i64 %now, %last
  %spin.p0 = getelementptr i8, ptr %pool, i64 280
  %recently = load i64, ptr %spin.p0, align 8
  %busy.times = icmp slt i64 %since, %recently
  br i1 %busy.times, label %share, label %alone
share:
  %asked.p = getelementptr i8, ptr %pool, i64 312
  %asked = load ptr, ptr %asked.p, align 8
  %free = icmp eq ptr %asked, null
  br i1 %free, label %wanted, label %ask
ask:
  %asked.32 = call i32 %asked()
  %asked.64 = sext i32 %asked.32 to i64
  %fewer = icmp slt i64 %asked.64, %all
  %bounded = select i1 %fewer, i64 %asked.64, i64 %all
  br label %wanted
wanted:
  %threads = phi i64 [ %all, %share ], [ %bounded, %ask ]
  %together = icmp sgt i64 %threads, 1
  br i1 %together, label %claim.pool, label %alone
claim.pool:
  %busy.p = getelementptr i8, ptr %pool, i64 256
  %got = cmpxchg ptr %busy.p, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %got, 1
  br i1 %mine, label %publish, label %alone
publish:
  ; chunk: an eighth of a fair share, and at least a sixteenth of what is worth sharing
  %parts = mul i64 %threads, 8
  %fair = sdiv i64 %left, %parts
  %worth = sdiv i64 %inline, 16
  %est.low = icmp slt i64 %est, 1
  %est.1 = select i1 %est.low, i64 1, i64 %est
  %least0 = sdiv i64 %worth, %est.1
  %least = add i64 %least0, 1
  %pick = icmp sgt i64 %fair, %least
  %chunk = select i1 %pick, i64 %fair, i64 %least
  %job.p = getelementptr i8, ptr %pool, i64 192
  store ptr %job, ptr %job.p, align 8
  %end.p = getelementptr i8, ptr %pool, i64 200
  store i64 %n, ptr %end.p, align 8
  %chunk.p = getelementptr i8, ptr %pool, i64 208
  store i64 %chunk, ptr %chunk.p, align 8
  %result.p = getelementptr i8, ptr %pool, i64 216
  store i32 0, ptr %result.p, align 4
  %others = sub i64 %threads, 1
  %others.32 = trunc i64 %others to i32
  %most.p = getelementptr i8, ptr %pool, i64 220
  store i32 %others.32, ptr %most.p, align 4
  %next.p = getelementptr i8, ptr %pool, i64 64
  store atomic i64 %begin, ptr %next.p monotonic, align 8
  %wake.p2 = getelementptr i8, ptr %pool, i64 288
  %wake2 = load i64, ptr %wake.p2, align 8
  %long.job = icmp sgt i64 %work, %wake2
  br i1 %long.job, label %apart, label %open
apart:
  ; a system call for each worker if this is another processor than last time: little beside so much work
  call void @keep_off(ptr %pool)
  br label %open
open:
  %opened = atomicrmw add ptr %pool, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %wake.up, label %join
wake.up:
  %left.1 = sub i64 %left, 1
  %helpers0 = sdiv i64 %left.1, %chunk
  %enough = icmp slt i64 %helpers0, %others
  %helpers1 = select i1 %enough, i64 %helpers0, i64 %others
  ; those that are awake see the job by themselves
  %asleep.64 = sext i32 %sleepers to i64
  %workers = sub i64 %all, 1
  %awake.now = sub i64 %workers, %asleep.64
  %missing = sub i64 %helpers1, %awake.now
  %some = icmp sgt i64 %missing, 0
  br i1 %some, label %wake.some, label %join
wake.some:
  call void @keep_off(ptr %pool)
  %helpers = trunc i64 %missing to i32
  call void @futex_wake(ptr %pool, i32 %helpers)
  br label %join
join:
  %t0 = call i64 @llvm.readcyclecounter()
  %ran = call i64 @participate(ptr %pool, ptr %job, i64 0, i64 %n, ptr %result.p)
  %t1 = call i64 @llvm.readcyclecounter()
  %ticks = sub i64 %t1, %t0
  call void @renew(ptr %job, i64 %ticks, i64 %ran)
  %closed = atomicrmw add ptr %pool, i32 1 seq_cst
  %active.p = getelementptr i8, ptr %pool, i64 128
  %waiting.p = getelementptr i8, ptr %pool, i64 132
  %spin.p = getelementptr i8, ptr %pool, i64 280
  %spin = load i64, ptr %spin.p, align 8
  br label %wait
wait:
  %a = load atomic i32, ptr %active.p seq_cst, align 4
  %over = icmp eq i32 %a, 0
  br i1 %over, label %finish, label %wait.more
wait.more:
  call void asm sideeffect "pause", "~{memory}"()
  %t2 = call i64 @llvm.readcyclecounter()
  %waited = sub i64 %t2, %t1
  %long = icmp sgt i64 %waited, %spin
  br i1 %long, label %wait.asleep, label %wait
wait.asleep:
  store atomic i32 1, ptr %waiting.p seq_cst, align 4
  call void @futex_wait(ptr %active.p, i32 %a)
  br label %wait
finish:
  store atomic i32 0, ptr %waiting.p seq_cst, align 4
  %r = load atomic i32, ptr %result.p seq_cst, align 4
  store atomic i32 0, ptr %busy.p release, align 4
  call void @note_end(ptr %pool)
  %wide = sext i32 %r to i64
  ret i64 %wide
}

; Keeps the workers off the processor of this thread, if it is another than last time. Needed because Linux under KVM
; takes a halted virtual processor for one that the host has taken away, wakes sleepers on the processor of their waker,
; and leaves them waiting there while others idle: 3 ms of work then ran in one thread. A worker whose mask lacks the
; waker's processor wakes where it last ran. Workers that are awake are moved for large work, too: a caller that slept
; until the last of them was done may wake on its processor, and two threads of one processor would share the next job.
define internal void @keep_off(ptr %pool) noinline {
entry:
  %count.p = getelementptr i8, ptr %pool, i64 308
  %count = load i32, ptr %count.p, align 4
  %none = icmp slt i32 %count, 1
  br i1 %none, label %leave, label %where
where:
  %cpu0 = call i32 asm sideeffect "rdtscp", "={cx},~{ax},~{dx},~{dirflag},~{fpsr},~{flags}"()
  %cpu = and i32 %cpu0, 4095
  %cpu.p = getelementptr i8, ptr %pool, i64 304
  %before = load i32, ptr %cpu.p, align 4
  %same = icmp eq i32 %cpu, %before
  %beyond = icmp ugt i32 %cpu, 1023
  %nothing = or i1 %same, %beyond
  br i1 %nothing, label %leave, label %move
move:
  store i32 %cpu, ptr %cpu.p, align 4
  %allowed = getelementptr i8, ptr %pool, i64 320
  %scratch = getelementptr i8, ptr %pool, i64 448
  %all = load i1024, ptr %allowed, align 64
  store i1024 %all, ptr %scratch, align 64
  %byte = lshr i32 %cpu, 3
  %byte.p = getelementptr i8, ptr %scratch, i32 %byte
  %old = load i8, ptr %byte.p, align 1
  %bit = and i32 %cpu, 7
  %bit8 = trunc i32 %bit to i8
  %one = shl i8 1, %bit8
  %others = xor i8 %one, -1
  %new = and i8 %old, %others
  store i8 %new, ptr %byte.p, align 1
  %tids = getelementptr i8, ptr %pool, i64 576
  br label %each
each:
  %i = phi i32 [ 0, %move ], [ %i1, %each ]
  %tid.p = getelementptr i32, ptr %tids, i32 %i
  %tid = load i32, ptr %tid.p, align 4
  %wide = zext i32 %tid to i64
  ; sched_setaffinity(tid, 128, scratch); an error (no processor left) leaves the worker where it is
  %r = call i64 asm sideeffect "syscall", "={ax},{ax},{di},{si},{dx},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"(i64 203, i64 %wide, i64 128, ptr %scratch)
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, %count
  br i1 %more, label %each, label %leave
leave:
  ret void
}

; Notes when a launch ended: what comes soon after belongs to one burst.
define internal void @note_end(ptr %pool) {
  %last.p = getelementptr i8, ptr %pool, i64 296
  %now = call i64 @llvm.readcyclecounter()
  store atomic i64 %now, ptr %last.p monotonic, align 8
  ret void
}

; The life of a worker: wait for an open job, take part, leave it; until stop is set.
define void @tl_worker(ptr %pool) {
entry:
  %sleepers.p = getelementptr i8, ptr %pool, i64 4
  %stop.p = getelementptr i8, ptr %pool, i64 8
  %active.p = getelementptr i8, ptr %pool, i64 128
  %waiting.p = getelementptr i8, ptr %pool, i64 132
  %job.p = getelementptr i8, ptr %pool, i64 192
  %end.p = getelementptr i8, ptr %pool, i64 200
  %result.p = getelementptr i8, ptr %pool, i64 216
  %spin.p = getelementptr i8, ptr %pool, i64 280
  %spin = load i64, ptr %spin.p, align 8
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %seen, %slept ], [ %done.seen, %left.job ]
  %t0 = call i64 @llvm.readcyclecounter()
  br label %look
look:
  %s = load atomic i32, ptr %pool seq_cst, align 4
  %stop = load atomic i32, ptr %stop.p monotonic, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %out, label %judge
judge:
  %odd = trunc i32 %s to i1
  %new = icmp ne i32 %s, %seen
  %go = and i1 %odd, %new
  br i1 %go, label %enter, label %rest
rest:
  call void asm sideeffect "pause", "~{memory}"()
  %t1 = call i64 @llvm.readcyclecounter()
  %spent = sub i64 %t1, %t0
  %tired = icmp sgt i64 %spent, %spin
  br i1 %tired, label %sleep, label %look
sleep:
  %s1 = atomicrmw add ptr %sleepers.p, i32 1 seq_cst
  call void @futex_wait(ptr %pool, i32 %s)
  %s2 = atomicrmw sub ptr %sleepers.p, i32 1 seq_cst
  br label %slept
slept:
  br label %idle
enter:
  %a0 = atomicrmw add ptr %active.p, i32 1 seq_cst
  %now = load atomic i32, ptr %pool seq_cst, align 4
  %open = trunc i32 %now to i1
  br i1 %open, label %room, label %left
room:
  %most.p = getelementptr i8, ptr %pool, i64 220
  %most = load i32, ptr %most.p, align 4
  %welcome = icmp slt i32 %a0, %most
  br i1 %welcome, label %work, label %left
work:
  %job = load ptr, ptr %job.p, align 8
  %end = load i64, ptr %end.p, align 8
  %ran = call i64 @participate(ptr %pool, ptr %job, i64 0, i64 %end, ptr %result.p)
  br label %left
left:
  %done.seen = phi i32 [ %seen, %enter ], [ %now, %room ], [ %now, %work ]
  %a1 = atomicrmw sub ptr %active.p, i32 1 seq_cst
  %last = icmp eq i32 %a1, 1
  br i1 %last, label %tell, label %left.job
tell:
  %w = load atomic i32, ptr %waiting.p seq_cst, align 4
  %someone = icmp ne i32 %w, 0
  br i1 %someone, label %tell.caller, label %left.job
tell.caller:
  call void @futex_wake(ptr %active.p, i32 1)
  br label %left.job
left.job:
  br label %idle
out:
  ret void
}

; Lets all workers leave @tl_worker, once no job is open.
define void @tl_stop(ptr %pool) {
  %stop.p = getelementptr i8, ptr %pool, i64 8
  store atomic i32 1, ptr %stop.p seq_cst, align 4
  %s = atomicrmw add ptr %pool, i32 2 seq_cst
  call void @futex_wake(ptr %pool, i32 2147483647)
  ret void
}

; The clock of estimates and thresholds.
define i64 @tl_ticks() {
  %t = call i64 @llvm.readcyclecounter()
  ret i64 %t
}

; futex(address, FUTEX_WAIT_PRIVATE, expected): sleeps while *address is `expected`; may return early, callers look again.
define internal void @futex_wait(ptr %address, i32 %expected) noinline {
  %wide = zext i32 %expected to i64
  %r = call i64 asm sideeffect "xorl %r10d, %r10d\0Asyscall", "={ax},{ax},{di},{si},{dx},~{rcx},~{r10},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"(i64 202, ptr %address, i64 128, i64 %wide)
  ret void
}

; futex(address, FUTEX_WAKE_PRIVATE, count)
define internal void @futex_wake(ptr %address, i32 %count) noinline {
  %wide = zext i32 %count to i64
  %r = call i64 asm sideeffect "syscall", "={ax},{ax},{di},{si},{dx},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"(i64 202, ptr %address, i64 129, i64 %wide)
  ret void
}

!llvm.module.flags = !{!0}
!0 = !{i32 8, !"PIC Level", i32 2}
