// This file copies private memory that a restore has mapped from the checkpoint's pages file when it is first written.
package mm

import (
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

const (
	// copyMappedBytes is the aligned unit of one copy: a larger one would read pages that are never written, a smaller one fault more often.
	copyMappedBytes = 64 << 10
	// mapUnitBytes bounds the range mapped at one fault, which may need a system call for each run of mapped pages in it.
	mapUnitBytes = 4 << 20
)

// CopyMappedOnWrite marks all memory of mm that is mapped from a pages file as copy-on-write.
//
// Preconditions: mm has been restored, and no task runs yet.
func (mm *MemoryManager) CopyMappedOnWrite() {
	if !mm.mf.IsMapped() {
		return
	}
	mm.activeMu.Lock()
	defer mm.activeMu.Unlock()
	for pseg := mm.pmas.FirstSegment(); pseg.Ok(); pseg = pseg.NextSegment() {
		if pma := pseg.ValuePtr(); !pma.private || pma.needCOW || pma.file != memmap.File(mm.mf) {
			continue
		}
		var parts []hostarch.AddrRange
		begin, fr := pseg.Start(), pseg.fileRange()
		mm.mf.EachMapped(fr, func(part memmap.FileRange) {
			parts = append(parts, hostarch.AddrRange{begin + hostarch.Addr(part.Start-fr.Start), begin + hostarch.Addr(part.End-fr.Start)})
		})
		for _, part := range parts {
			pseg = mm.pmas.Isolate(mm.pmas.FindSegment(part.Start), part)
			pma := pseg.ValuePtr()
			pma.needCOW = true
			pma.effectivePerms.Write = false
			pma.maxPerms.Write = false
		}
	}
}

// copyAroundLocked returns the range of pseg that may be copied for a write to ar; huge is that range for memory that is not mapped.
func (mm *MemoryManager) copyAroundLocked(pseg pmaIterator, ar, huge hostarch.AddrRange) hostarch.AddrRange {
	if pseg.ValuePtr().file != memmap.File(mm.mf) || !mm.mf.HasMapped(pseg.fileRange()) {
		return huge
	}
	around := hostarch.AddrRange{ar.Start &^ (copyMappedBytes - 1), ar.End}
	if end := (ar.End + copyMappedBytes - 1) &^ (copyMappedBytes - 1); end >= ar.End {
		around.End = end
	}
	return around
}
