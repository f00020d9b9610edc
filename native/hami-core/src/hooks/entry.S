/*
 * The exported functions that must not have a C frame.
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

#elif defined(__aarch64__)

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

#else
#error "libvgpu.so is for x86-64 and aarch64"
#endif

    .text
    LOOKUP dlsym, hami_decide_dlsym
    LOOKUP dlvsym, hami_decide_dlvsym
    LOOKUP dlopen, hami_decide_dlopen
    LOOKUP dlmopen, hami_decide_dlmopen

    .section .note.GNU-stack, "", %progbits
