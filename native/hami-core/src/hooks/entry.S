/*
 * The exported functions that must not have a C frame.
 *
 * HOOK_FORWARD rows: a jump to the driver's function with every register unchanged, so that no prototype is needed. The first call
 * asks hami_forward_target() where to jump, and so does each call of a function that the driver lacks.
 *
 * dlopen and dlmopen: always continue at the real function as the caller's own call.
 *
 * dlsym and dlvsym: lookups of other libraries' names, and every RTLD_NEXT, continue at the real function as the caller's own call,
 * because glibc finds the caller's library from the return address.
 */
#if defined(__x86_64__)

#if defined(__CET__)
#include <cet.h>
#endif

/* %r11 is free at a call. Arguments are in %rdi ... %r9, %xmm0 ... %xmm7, and %rax for variadic functions. */
.macro FORWARD symbol
    .globl \symbol
    .type \symbol, @function
    .globl hami_thunk_\symbol
    .hidden hami_thunk_\symbol
    .p2align 4
\symbol:
hami_thunk_\symbol:
    .cfi_startproc
    endbr64
    movq hami_forward_\symbol(%rip), %r11
    testq %r11, %r11
    jz 1f
    jmp *%r11
1:  leaq hami_forward_\symbol(%rip), %r11
    jmp forward_unknown
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

.macro LOOKUP name, decide
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    SAVE %rdi
    SAVE %rsi
    SAVE %rdx
    movq 24(%rsp), %rcx
    call \decide
    movq %rdx, %r11
    RESTORE %rdx
    RESTORE %rsi
    RESTORE %rdi
    testq %r11, %r11
    jnz 1f
    ret
1:  jmp *%r11
    .cfi_endproc
    .size \name, . - \name
.endm

    .text
    .type forward_unknown, @function
forward_unknown:
    .cfi_startproc
    SAVE %rax
    SAVE %rdi
    SAVE %rsi
    SAVE %rdx
    SAVE %rcx
    SAVE %r8
    SAVE %r9
    SAVE %r10
    subq $136, %rsp
    .cfi_adjust_cfa_offset 136
    movups %xmm0, (%rsp)
    movups %xmm1, 16(%rsp)
    movups %xmm2, 32(%rsp)
    movups %xmm3, 48(%rsp)
    movups %xmm4, 64(%rsp)
    movups %xmm5, 80(%rsp)
    movups %xmm6, 96(%rsp)
    movups %xmm7, 112(%rsp)
    movq %r11, %rdi
    call hami_forward_target
    movq %rax, %r11
    movups (%rsp), %xmm0
    movups 16(%rsp), %xmm1
    movups 32(%rsp), %xmm2
    movups 48(%rsp), %xmm3
    movups 64(%rsp), %xmm4
    movups 80(%rsp), %xmm5
    movups 96(%rsp), %xmm6
    movups 112(%rsp), %xmm7
    addq $136, %rsp
    .cfi_adjust_cfa_offset -136
    RESTORE %r10
    RESTORE %r9
    RESTORE %r8
    RESTORE %rcx
    RESTORE %rdx
    RESTORE %rsi
    RESTORE %rdi
    RESTORE %rax
    jmp *%r11
    .cfi_endproc
    .size forward_unknown, . - forward_unknown

#elif defined(__aarch64__)

/* x16 and x17 are free at a call. Arguments are in x0 ... x7, x8 and q0 ... q7. `hint #34` is `bti c`. */
.macro FORWARD symbol
    .globl \symbol
    .type \symbol, %function
    .globl hami_thunk_\symbol
    .hidden hami_thunk_\symbol
    .p2align 4
\symbol:
hami_thunk_\symbol:
    .cfi_startproc
    hint #34
    adrp x17, hami_forward_\symbol
    add x17, x17, :lo12:hami_forward_\symbol
    ldr x16, [x17]
    cbz x16, 1f
    br x16
1:  b forward_unknown
    .cfi_endproc
    .size \symbol, . - \symbol
.endm

.macro LOOKUP name, decide
    .globl \name
    .type \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint #34
    stp x29, x30, [sp, #-48]!
    .cfi_def_cfa_offset 48
    .cfi_offset x29, -48
    .cfi_offset x30, -40
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    mov x3, x30
    bl \decide
    mov x17, x0
    mov x16, x1
    ldr x2, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #48
    .cfi_restore x30
    .cfi_restore x29
    .cfi_def_cfa_offset 0
    cbnz x16, 1f
    mov x0, x17
    ret
1:  br x16
    .cfi_endproc
    .size \name, . - \name
.endm

    .text
    .type forward_unknown, %function
forward_unknown:
    .cfi_startproc
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset x29, -224
    .cfi_offset x30, -216
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov x0, x17
    bl hami_forward_target
    mov x16, x0
    ldp q6, q7, [sp, #192]
    ldp q4, q5, [sp, #160]
    ldp q2, q3, [sp, #128]
    ldp q0, q1, [sp, #96]
    ldr x8, [sp, #80]
    ldp x6, x7, [sp, #64]
    ldp x4, x5, [sp, #48]
    ldp x2, x3, [sp, #32]
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #224
    .cfi_restore x30
    .cfi_restore x29
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size forward_unknown, . - forward_unknown

#else
#error "libvgpu.so is for x86-64 and aarch64"
#endif

    LOOKUP dlsym, hami_decide_dlsym
    LOOKUP dlvsym, hami_decide_dlvsym
    LOOKUP dlopen, hami_decide_dlopen
    LOOKUP dlmopen, hami_decide_dlmopen

#define HOOK_CUSTOM(...)
#define HOOK_FORWARD(symbol, ...) FORWARD symbol
#include "hooks_cuda.def"
#include "hooks_nvml.def"

    .section .note.GNU-stack, "", %progbits
