#include "textflag.h"

// func prefetch(tags *uint64, s *set)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ tags+0(FP), AX
	MOVQ s+8(FP), BX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	PREFETCHT0 64(BX)
	PREFETCHT0 128(BX)
	PREFETCHT0 192(BX)
	PREFETCHT0 256(BX)
	PREFETCHT0 320(BX)
	RET

// func prefetchLines(a, b *line)
TEXT ·prefetchLines(SB), NOSPLIT, $0-16
	MOVQ a+0(FP), AX
	MOVQ b+8(FP), BX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	RET
