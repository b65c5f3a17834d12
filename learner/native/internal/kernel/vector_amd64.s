#include "textflag.h"

// min = -87.0
DATA exp_min<>+0(SB)/4, $0xc2ae0000
GLOBL exp_min<>(SB), RODATA|NOPTR, $4
// max = 88.0
DATA exp_max<>+0(SB)/4, $0x42b00000
GLOBL exp_max<>(SB), RODATA|NOPTR, $4
// log2e = 1.4426950408889634
DATA exp_log2e<>+0(SB)/4, $0x3fb8aa3b
GLOBL exp_log2e<>(SB), RODATA|NOPTR, $4
// hi = 0.693359375
DATA exp_hi<>+0(SB)/4, $0x3f318000
GLOBL exp_hi<>(SB), RODATA|NOPTR, $4
// lo = -0.00021219444
DATA exp_lo<>+0(SB)/4, $0xb95e8083
GLOBL exp_lo<>(SB), RODATA|NOPTR, $4
// c0 = 0.000198756915
DATA exp_c0<>+0(SB)/4, $0x39506967
GLOBL exp_c0<>(SB), RODATA|NOPTR, $4
// c1 = 0.0013981999507
DATA exp_c1<>+0(SB)/4, $0x3ab743ce
GLOBL exp_c1<>(SB), RODATA|NOPTR, $4
// c2 = 0.0083334519073
DATA exp_c2<>+0(SB)/4, $0x3c088908
GLOBL exp_c2<>(SB), RODATA|NOPTR, $4
// c3 = 0.041665795894
DATA exp_c3<>+0(SB)/4, $0x3d2aa9c1
GLOBL exp_c3<>(SB), RODATA|NOPTR, $4
// c4 = 0.16666665459
DATA exp_c4<>+0(SB)/4, $0x3e2aaaaa
GLOBL exp_c4<>(SB), RODATA|NOPTR, $4
// c5 = 0.50000001201
DATA exp_c5<>+0(SB)/4, $0x3f000000
GLOBL exp_c5<>(SB), RODATA|NOPTR, $4
// one = 1.0
DATA exp_one<>+0(SB)/4, $0x3f800000
GLOBL exp_one<>(SB), RODATA|NOPTR, $4
DATA exp_bias<>+0(SB)/4, $127
GLOBL exp_bias<>(SB), RODATA|NOPTR, $4

// Eight ones and eight zeros: a load at 32-4n bytes is the mask of n lanes.
DATA lanes<>+0(SB)/4, $0xffffffff
DATA lanes<>+4(SB)/4, $0xffffffff
DATA lanes<>+8(SB)/4, $0xffffffff
DATA lanes<>+12(SB)/4, $0xffffffff
DATA lanes<>+16(SB)/4, $0xffffffff
DATA lanes<>+20(SB)/4, $0xffffffff
DATA lanes<>+24(SB)/4, $0xffffffff
DATA lanes<>+28(SB)/4, $0xffffffff
DATA lanes<>+32(SB)/4, $0
DATA lanes<>+36(SB)/4, $0
DATA lanes<>+40(SB)/4, $0
DATA lanes<>+44(SB)/4, $0
DATA lanes<>+48(SB)/4, $0
DATA lanes<>+52(SB)/4, $0
DATA lanes<>+56(SB)/4, $0
DATA lanes<>+60(SB)/4, $0
GLOBL lanes<>(SB), RODATA|NOPTR, $64

// EXP turns the eight numbers of Y0 into their exponentials; Y1 to Y3 are lost.
#define EXP \
	VMAXPS Y15, Y0, Y0 \
	VMINPS Y14, Y0, Y0 \
	VMULPS Y13, Y0, Y1 \
	VROUNDPS $0, Y1, Y1 \
	VFNMADD231PS Y12, Y1, Y0 \
	VFNMADD231PS Y11, Y1, Y0 \
	VMOVAPS Y10, Y2 \
	VFMADD213PS Y9, Y0, Y2 \
	VFMADD213PS Y8, Y0, Y2 \
	VFMADD213PS Y7, Y0, Y2 \
	VFMADD213PS Y6, Y0, Y2 \
	VFMADD213PS Y5, Y0, Y2 \
	VMULPS Y0, Y0, Y3 \
	VFMADD213PS Y0, Y3, Y2 \
	VBROADCASTSS exp_one<>(SB), Y3 \
	VADDPS Y3, Y2, Y2 \
	VCVTPS2DQ Y1, Y1 \
	VPBROADCASTD exp_bias<>(SB), Y3 \
	VPADDD Y3, Y1, Y1 \
	VPSLLD $23, Y1, Y1 \
	VMULPS Y1, Y2, Y0

// func expSumAVX2(dst, src *float32, n int, shift float32) float32
TEXT ·expSumAVX2(SB), NOSPLIT, $0-36
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS exp_min<>(SB), Y15
	VBROADCASTSS exp_max<>(SB), Y14
	VBROADCASTSS exp_log2e<>(SB), Y13
	VBROADCASTSS exp_hi<>(SB), Y12
	VBROADCASTSS exp_lo<>(SB), Y11
	VBROADCASTSS exp_c0<>(SB), Y10
	VBROADCASTSS exp_c1<>(SB), Y9
	VBROADCASTSS exp_c2<>(SB), Y8
	VBROADCASTSS exp_c3<>(SB), Y7
	VBROADCASTSS exp_c4<>(SB), Y6
	VBROADCASTSS exp_c5<>(SB), Y5
	VXORPS Y4, Y4, Y4
	SUBQ $8, CX
	JL   exptail

exploop:
	VBROADCASTSS shift+24(FP), Y1
	VMOVUPS (SI), Y0
	VSUBPS Y1, Y0, Y0
	EXP
	VMOVUPS Y0, (DI)
	VADDPS Y0, Y4, Y4
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JGE  exploop

exptail:
	ADDQ $8, CX
	JZ   expdone
	LEAQ lanes<>+32(SB), AX
	SHLQ $2, CX
	SUBQ CX, AX
	VMOVUPS (AX), Y2
	VBROADCASTSS shift+24(FP), Y1
	VMASKMOVPS (SI), Y2, Y0
	VSUBPS Y1, Y0, Y0
	EXP
	VMOVUPS (AX), Y2
	VANDPS Y2, Y0, Y0
	VMASKMOVPS Y0, Y2, (DI)
	VADDPS Y0, Y4, Y4

expdone:
	VEXTRACTF128 $1, Y4, X0
	VADDPS X0, X4, X0
	VHADDPS X0, X0, X0
	VHADDPS X0, X0, X0
	VMOVSS X0, ret+32(FP)
	VZEROUPPER
	RET

// func maxAVX2(x *float32, n int) float32
TEXT ·maxAVX2(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), CX
	VMOVUPS (SI), Y0

maxloop:
	VMAXPS (SI), Y0, Y0
	ADDQ $32, SI
	SUBQ $8, CX
	JG   maxloop
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VPERMILPS $0x4e, X0, X1
	VMAXPS X1, X0, X0
	VPERMILPS $0xb1, X0, X1
	VMAXPS X1, X0, X0
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

// func dotAVX2(x, y *float32, n int) float32
TEXT ·dotAVX2(SB), NOSPLIT, $0-28
	MOVQ x+0(FP), SI
	MOVQ y+8(FP), DX
	MOVQ n+16(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y2, Y2, Y2
	SUBQ $16, CX
	JL   dottail

dotloop:
	VMOVUPS (SI), Y1
	VMOVUPS 32(SI), Y3
	VFMADD231PS (DX), Y1, Y0
	VFMADD231PS 32(DX), Y3, Y2
	ADDQ $64, SI
	ADDQ $64, DX
	SUBQ $16, CX
	JGE  dotloop

dottail:
	ADDQ $16, CX
	JZ   dotdone
	VMOVUPS (SI), Y1
	VFMADD231PS (DX), Y1, Y0

dotdone:
	VADDPS Y2, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPS X1, X0, X0
	VHADDPS X0, X0, X0
	VHADDPS X0, X0, X0
	VMOVSS X0, ret+24(FP)
	VZEROUPPER
	RET

// func axpyAVX2(y *float32, a float32, x *float32, n int)
TEXT ·axpyAVX2(SB), NOSPLIT, $0-32
	MOVQ y+0(FP), DI
	VBROADCASTSS a+8(FP), Y0
	MOVQ x+16(FP), SI
	MOVQ n+24(FP), CX

axpyloop:
	VMOVUPS (DI), Y1
	VFMADD231PS (SI), Y0, Y1
	VMOVUPS Y1, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JG   axpyloop
	VZEROUPPER
	RET

// func mixAVX2(dst, w, rows *float32, stride, k int)
//
// Four rows at a time go to sums of their own: one chain of additions would wait
// for each of them. stride is in bytes.
TEXT ·mixAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ w+8(FP), SI
	MOVQ rows+16(FP), DX
	MOVQ stride+24(FP), R8
	MOVQ k+32(FP), CX
	LEAQ (R8)(R8*2), R9
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	SUBQ $4, CX
	JL   mixtail

mixloop:
	VBROADCASTSS (SI), Y8
	VBROADCASTSS 4(SI), Y9
	VBROADCASTSS 8(SI), Y10
	VBROADCASTSS 12(SI), Y11
	VFMADD231PS (DX), Y8, Y0
	VFMADD231PS 32(DX), Y8, Y1
	VFMADD231PS (DX)(R8*1), Y9, Y2
	VFMADD231PS 32(DX)(R8*1), Y9, Y3
	VFMADD231PS (DX)(R8*2), Y10, Y4
	VFMADD231PS 32(DX)(R8*2), Y10, Y5
	VFMADD231PS (DX)(R9*1), Y11, Y6
	VFMADD231PS 32(DX)(R9*1), Y11, Y7
	ADDQ $16, SI
	LEAQ (DX)(R8*4), DX
	SUBQ $4, CX
	JGE  mixloop

mixtail:
	ADDQ $4, CX
	JZ   mixdone

mixone:
	VBROADCASTSS (SI), Y8
	VFMADD231PS (DX), Y8, Y0
	VFMADD231PS 32(DX), Y8, Y1
	ADDQ $4, SI
	ADDQ R8, DX
	DECQ CX
	JNZ  mixone

mixdone:
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	VADDPS Y6, Y4, Y4
	VADDPS Y7, Y5, Y5
	VADDPS Y4, Y0, Y0
	VADDPS Y5, Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VZEROUPPER
	RET

// func scaleAVX2(x *float32, n int, a float32)
TEXT ·scaleAVX2(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), DI
	MOVQ n+8(FP), CX
	VBROADCASTSS a+16(FP), Y0

scaleloop:
	VMULPS (DI), Y0, Y1
	VMOVUPS Y1, (DI)
	ADDQ $32, DI
	SUBQ $8, CX
	JG   scaleloop
	VZEROUPPER
	RET

// func squaredReLUAVX2(y, x *float32, n int)
TEXT ·squaredReLUAVX2(SB), NOSPLIT, $0-24
	MOVQ y+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VXORPS Y0, Y0, Y0

reluloop:
	VMAXPS (SI), Y0, Y1
	VMULPS Y1, Y1, Y1
	VMOVUPS Y1, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JG   reluloop
	VZEROUPPER
	RET

// func squaredReLUBackAVX2(dy, x *float32, n int)
TEXT ·squaredReLUBackAVX2(SB), NOSPLIT, $0-24
	MOVQ dy+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	VXORPS Y0, Y0, Y0

relubackloop:
	VMAXPS (SI), Y0, Y1
	VADDPS Y1, Y1, Y1
	VMULPS (DI), Y1, Y1
	VMOVUPS Y1, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JG   relubackloop
	VZEROUPPER
	RET

// func adamAVX2(w, grad, m, v *float32, n int, c *Adam)
TEXT ·adamAVX2(SB), NOSPLIT, $0-48
	MOVQ w+0(FP), DI
	MOVQ grad+8(FP), SI
	MOVQ m+16(FP), R8
	MOVQ v+24(FP), R9
	MOVQ n+32(FP), CX
	MOVQ c+40(FP), AX
	VBROADCASTSS 0(AX), Y15
	VBROADCASTSS 4(AX), Y14
	VBROADCASTSS 8(AX), Y13
	VBROADCASTSS 12(AX), Y12
	VBROADCASTSS 16(AX), Y11
	VBROADCASTSS 20(AX), Y10
	VBROADCASTSS exp_one<>(SB), Y0
	VSUBPS Y14, Y0, Y9
	VSUBPS Y13, Y0, Y8

adamloop:
	VMULPS (SI), Y15, Y0
	VMULPS (R8), Y14, Y1
	VFMADD231PS Y0, Y9, Y1
	VMOVUPS Y1, (R8)
	VMULPS Y0, Y0, Y0
	VMULPS (R9), Y13, Y2
	VFMADD231PS Y0, Y8, Y2
	VMOVUPS Y2, (R9)
	VSQRTPS Y2, Y2
	VADDPS Y11, Y2, Y2
	VMULPS Y12, Y1, Y1
	VDIVPS Y2, Y1, Y1
	VMULPS (DI), Y10, Y3
	VSUBPS Y1, Y3, Y3
	VMOVUPS Y3, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	ADDQ $32, R8
	ADDQ $32, R9
	SUBQ $8, CX
	JG   adamloop
	VZEROUPPER
	RET
