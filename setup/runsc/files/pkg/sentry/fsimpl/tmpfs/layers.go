// Pages of a file that lie in a sealed layer of its memory file are copied before they are written.
//
// While a file is not mapped for writing, its mappings may show sealed pages read-only; a write drops the translations that it
// replaces. Once the file is mapped for writing, no mapping shows a sealed page, since a fault in one address space cannot drop the
// translations of others.
package tmpfs

import (
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/hostfd"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

// maxUnsealBytes bounds one allocation, since a write may have any length.
const maxUnsealBytes = 16 << 20

// unsealLocked copies the pages of mr that are in a sealed layer, and returns whether there were any.
//
// Preconditions: rf.dataMu is locked for writing; mr is page-aligned.
func (rf *regularFile) unsealLocked(mr memmap.MappableRange, memCgID uint32) (bool, error) {
	mf := rf.inode.fs.mf
	end := mf.SealedEnd()
	if end == 0 {
		return false, nil
	}
	changed := false
	for seg := rf.data.LowerBoundSegment(mr.Start); seg.Ok() && seg.Start() < mr.End; seg = rf.data.LowerBoundSegment(mr.Start) {
		part := seg.Range().Intersect(mr)
		part.End = min(part.End, part.Start+maxUnsealBytes)
		mr.Start = part.End
		if old := seg.FileRangeOf(part); old.Start < end {
			fr, err := mf.Allocate(part.Length(), pgalloc.AllocOpts{
				Kind:    rf.memoryUsageKind,
				MemCgID: memCgID,
				Mode:    pgalloc.AllocateCallerIndirectCommit,
			})
			if err != nil {
				return changed, err
			}
			if err := copyPages(mf, old, fr); err != nil {
				mf.DecRef(fr)
				return changed, err
			}
			rf.data.Insert(rf.data.Remove(rf.data.Isolate(seg, part)), part, fr.Start)
			mf.DecRef(old)
			changed = true
		}
		if mr.Start >= mr.End {
			break
		}
	}
	return changed, nil
}

func copyPages(mf *pgalloc.MemoryFile, from, to memmap.FileRange) error {
	src, err := mf.MapInternal(from, hostarch.Read)
	if err != nil {
		return err
	}
	fd, err := mf.DataFD(to)
	if err != nil {
		return err
	}
	for off := to.Start; off < to.End; {
		n, err := hostfd.Pwritev2(int32(fd), src, int64(off), 0)
		if err != nil {
			return err
		}
		if n == 0 {
			return linuxerr.EIO
		}
		off += n
		src = src.DropFirst64(n)
	}
	return nil
}

// unseal makes the pages in [offset, offset+length) writable.
//
// Preconditions: rf.inode.mu is locked.
func (rf *regularFile) unseal(offset, length int64, memCgID uint32) error {
	if rf.inode.fs.mf.SealedEnd() == 0 {
		return nil
	}
	mr := memmap.MappableRange{Start: hostarch.PageRoundDown(uint64(offset)), End: offsetPageEnd(offset + length)}
	rf.dataMu.Lock()
	changed, err := rf.unsealLocked(mr, memCgID)
	rf.dataMu.Unlock()
	if changed {
		rf.dropTranslations(mr)
	}
	return err
}

func (rf *regularFile) dropTranslations(mr memmap.MappableRange) {
	rf.mapsMu.Lock()
	rf.mappings.Invalidate(mr, memmap.InvalidateOpts{})
	rf.mapsMu.Unlock()
}

// Preconditions: rf.dataMu is locked.
func (rf *regularFile) isMappedForWriting() bool {
	return rf.wasMappedForWriting || atomic.LoadUint64(&rf.writableMappingPages) != 0
}

// beforeMappingForWriting drops all translations before the file is first mapped for writing, so that none to a sealed page is left.
//
// Preconditions: rf.mapsMu is locked.
func (rf *regularFile) beforeMappingForWriting() {
	rf.dataMu.Lock()
	was := rf.isMappedForWriting()
	rf.wasMappedForWriting = true
	rf.dataMu.Unlock()
	if !was && rf.inode.fs.mf.SealedEnd() != 0 {
		rf.mappings.InvalidateAll(memmap.InvalidateOpts{})
	}
}

// dropTranslationsForSave drops the translations of a file that is mapped for writing, since its pages are about to be sealed.
func (rf *regularFile) dropTranslationsForSave() {
	if !rf.inode.fs.mf.IsDiskBacked() {
		return
	}
	rf.mapsMu.Lock()
	defer rf.mapsMu.Unlock()
	if rf.writableMappingPages != 0 {
		rf.mappings.InvalidateAll(memmap.InvalidateOpts{})
	}
}

// permsOf returns the access that a translation to fr may allow.
func (rf *regularFile) permsOf(fr memmap.FileRange) hostarch.AccessType {
	if fr.Start < rf.inode.fs.mf.SealedEnd() {
		return hostarch.ReadExecute
	}
	return hostarch.AnyAccess
}
