package memory

import (
	"syscall"
	"unsafe"
)

// inHugePages asks the kernel to keep sets in pages of two megabytes. Keys lie anywhere in a table:
// in pages of 4 KiB the processor has to find out for nearly every key where its page lies, as it
// remembers that of some thousand. It is advice: a kernel without such pages has no use for it.
// Smaller tables are left as they are, since of small pages only those take memory that are used.
func inHugePages(sets []set) {
	const page = 2 << 20
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&sets[0])), len(sets)*int(unsafe.Sizeof(set{})))
	from := int(-uintptr(unsafe.Pointer(&sets[0])) % page)
	if whole := (len(bytes) - from) / page * page; whole > 0 {
		_ = syscall.Madvise(bytes[from:][:whole], syscall.MADV_HUGEPAGE)
	}
}
