#include "textflag.h"

// func prefetch(tags *uint64, s *set)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVD tags+0(FP), R0
	MOVD s+8(FP), R1
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PSTL1KEEP
	PRFM 64(R1), PSTL1KEEP
	PRFM 128(R1), PSTL1KEEP
	PRFM 192(R1), PSTL1KEEP
	PRFM 256(R1), PSTL1KEEP
	PRFM 320(R1), PSTL1KEEP
	RET

// func prefetchLines(a, b *line)
TEXT ·prefetchLines(SB), NOSPLIT, $0-16
	MOVD a+0(FP), R0
	MOVD b+8(FP), R1
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	RET
