#include "textflag.h"

// func prefetch(tags *uint64, s *set)
// The bytes are PREFETCHW d(BX), which Go's assembler does not know: who writes a line that another processor has
// written asks for it once, and not to read it first. Processors that cannot do that take it for nothing to do.
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ tags+0(FP), AX
	MOVQ s+8(FP), BX
	PREFETCHT0 (AX)
	BYTE $0x0F; BYTE $0x0D; BYTE $0x0B
	BYTE $0x0F; BYTE $0x0D; BYTE $0x4B; BYTE $0x40
	BYTE $0x0F; BYTE $0x0D; BYTE $0x8B; BYTE $0x80; BYTE $0x00; BYTE $0x00; BYTE $0x00
	BYTE $0x0F; BYTE $0x0D; BYTE $0x8B; BYTE $0xC0; BYTE $0x00; BYTE $0x00; BYTE $0x00
	BYTE $0x0F; BYTE $0x0D; BYTE $0x8B; BYTE $0x00; BYTE $0x01; BYTE $0x00; BYTE $0x00
	BYTE $0x0F; BYTE $0x0D; BYTE $0x8B; BYTE $0x40; BYTE $0x01; BYTE $0x00; BYTE $0x00
	RET

// func prefetchLines(a, b *line)
TEXT ·prefetchLines(SB), NOSPLIT, $0-16
	MOVQ a+0(FP), AX
	MOVQ b+8(FP), BX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	RET
