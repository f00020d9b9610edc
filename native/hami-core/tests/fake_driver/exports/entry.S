/*
 * The exported functions of a fake library: each jumps to its implementation with every register unchanged.
 *
 * The call is counted first, and while faults are armed fake_entry_interrupt() returns where to go instead. The names are those of
 * FAKE_NAMES that are not newer than FAKE_NEWEST, as in a driver of that version.
 */
#if defined(__x86_64__)

/* %r10 and %r11 are free at a call. Arguments are in %rdi ... %r9 and %xmm0 ... %xmm7, and %rax has their number. */
.macro ENTRY symbol
    .globl \symbol
    .type \symbol, @function
    .p2align 4
\symbol:
.Lexport_\symbol:
    .cfi_startproc
    endbr64
    leaq fake_entries + entry_offset(%rip), %r11
    jmp entered
    .cfi_endproc
    .size \symbol, . - \symbol
.endm

.macro SAVE register
    pushq \register
    .cfi_adjust_cfa_offset 8
.endm

.macro RESTORE register
    popq \register
    .cfi_adjust_cfa_offset -8
.endm

    .text
    .type entered, @function
entered:
    .cfi_startproc
    movl $1, %r10d
    lock xaddq %r10, 8(%r11)
    cmpb $0, fake_entry_is_armed(%rip)
    jne 1f
    jmp *(%r11)
1:  SAVE %rax
    SAVE %rdi
    SAVE %rsi
    SAVE %rdx
    SAVE %rcx
    SAVE %r8
    SAVE %r9
    subq $16, %rsp
    .cfi_adjust_cfa_offset 16
    movups %xmm0, (%rsp)
    movq %r11, %rdi
    leaq 1(%r10), %rsi
    leaq 72(%rsp), %rdx
    call fake_entry_interrupt
    movq %rax, %r11
    movups (%rsp), %xmm0
    addq $16, %rsp
    .cfi_adjust_cfa_offset -16
    RESTORE %r9
    RESTORE %r8
    RESTORE %rcx
    RESTORE %rdx
    RESTORE %rsi
    RESTORE %rdi
    RESTORE %rax
    jmp *%r11
    .cfi_endproc
    .size entered, . - entered

/* The return address of a call that must be the last. */
    .globl fake_entry_last_return
    .hidden fake_entry_last_return
    .type fake_entry_last_return, @function
fake_entry_last_return:
    call fake_entry_die
    .size fake_entry_last_return, . - fake_entry_last_return

#elif defined(__aarch64__)

/* x16 and x17 are free at a call. Arguments are in x0 ... x7, x8 and q0 ... q7. `hint #34` is `bti c`. */
.macro ENTRY symbol
    .globl \symbol
    .type \symbol, %function
    .p2align 4
\symbol:
.Lexport_\symbol:
    .cfi_startproc
    hint #34
    adrp x17, fake_entries + entry_offset
    add x17, x17, :lo12:fake_entries + entry_offset
    b entered
    .cfi_endproc
    .size \symbol, . - \symbol
.endm

    .text
    .type entered, %function
entered:
    .cfi_startproc
    stp x29, x30, [sp, #-112]!
    .cfi_def_cfa_offset 112
    .cfi_offset x29, -112
    .cfi_offset x30, -104
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str q0, [sp, #80]
    add x16, x17, #8
1:  ldaxr x1, [x16]
    add x1, x1, #1
    stlxr w0, x1, [x16]
    cbnz w0, 1b
    adrp x16, fake_entry_is_armed
    ldrb w16, [x16, :lo12:fake_entry_is_armed]
    cbz w16, 2f
    mov x0, x17
    add x2, sp, #8
    bl fake_entry_interrupt
    mov x16, x0
    b 3f
2:  ldr x16, [x17]
3:  ldr q0, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #112
    .cfi_restore x30
    .cfi_restore x29
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size entered, . - entered

    .globl fake_entry_last_return
    .hidden fake_entry_last_return
    .type fake_entry_last_return, %function
fake_entry_last_return:
    bl fake_entry_die
    .size fake_entry_last_return, . - fake_entry_last_return

#else
#error "the fake driver is for x86-64 and aarch64"
#endif

/* An entry has 32 bytes, see entry.h. */
    .set entry_offset, 0

.macro KNOWN symbol, since
    .if \since <= FAKE_NEWEST
    ENTRY \symbol
    .endif
    .set entry_offset, entry_offset + 32
.endm

#define NAME(symbol, since) KNOWN symbol, since
#include FAKE_NAMES
#undef NAME

.macro EXPORT symbol, since
    .if \since <= FAKE_NEWEST
    .quad .Lexport_\symbol
    .else
    .quad 0
    .endif
.endm

    .section .data.rel.ro, "aw"
    .p2align 3
    .globl fake_exports
    .hidden fake_exports
    .type fake_exports, %object
fake_exports:
#define NAME(symbol, since) EXPORT symbol, since
#include FAKE_NAMES
    .size fake_exports, . - fake_exports

    .section .note.GNU-stack, "", %progbits
