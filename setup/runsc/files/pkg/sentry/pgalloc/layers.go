// Layers: a disk-backed memory file consists of several files, of which only the newest is ever written.
//
// A checkpoint seals the newest layer, and the sandbox continues on an empty one above it. So the checkpoint itself contains no
// pages, and a restore from it maps the sealed files as they are. Layer n has the chunks from the end of layer n-1 to its own size.
package pgalloc

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// layersVersion marks metadata whose pages are in layers instead of the pages file.
const layersVersion = 2

const (
	// maxLayers bounds the files that a restore opens, and the number of checkpoints after which unreferenced pages are dropped.
	maxLayers = 64
	// maxLeftBytes is the amount of unreferenced pages that a sandbox's layers may always have, however small the sandbox is.
	maxLeftBytes = 64 << 20
)

// nextLayer is the file that the memory file writes to after the running checkpoint; nil if the checkpoint must contain all pages.
var nextLayer atomic.Pointer[os.File]

// OfferNextLayer makes the next checkpoint seal the present layers, after which the sandbox writes to file.
func OfferNextLayer(file *os.File) {
	if old := nextLayer.Swap(file); old != nil {
		old.Close()
	}
}

// takeNextLayerLocked returns the layer to continue on. It returns nil if the checkpoint must contain all pages, because no layer was
// offered or the layers have too many unreferenced pages; a restore from such a checkpoint has a single layer again.
func (f *MemoryFile) takeNextLayerLocked() *os.File {
	if !f.opts.DiskBackedFile || !f.opts.ResourceID.Ok() {
		return nil
	}
	next := nextLayer.Swap(nil)
	if next == nil || f.worthSealingLocked() {
		return next
	}
	next.Close()
	return nil
}

func (f *MemoryFile) worthSealingLocked() bool {
	used, held, layers := uint64(0), uint64(0), 0
	for s := f.memAcct.FirstSegment(); s.Ok(); s = s.NextSegment() {
		used += s.Range().Length()
	}
	last := (*os.File)(nil)
	for _, chunk := range f.chunksLoad() {
		if chunk.layer == nil || chunk.layer == last {
			continue
		}
		last = chunk.layer
		layers++
		var stat unix.Stat_t
		if err := unix.Fstat(int(last.Fd()), &stat); err != nil {
			return false
		}
		held += uint64(stat.Blocks) * 512
	}
	return layers < maxLayers && held <= 2*used+maxLeftBytes
}

// SetLayers passes the sealed files of the checkpoint to load, oldest first; see loadLayers.
func (f *MemoryFile) SetLayers(files []*os.File) {
	f.layers = files
}

// SealedEnd returns the offset of the first writable page; all pages before it are mapped read-only.
func (f *MemoryFile) SealedEnd() uint64 {
	return f.sealedEnd.Load()
}

// guardAt returns the number of bytes at the beginning of the chunk at off that are never allocated. Without this gap, two
// allocations on both sides of a layer's beginning could merge into one range and be mapped from one of the two files.
func (f *MemoryFile) guardAt(off uint64) uint64 {
	if off != 0 && off == f.sealedEnd.Load() {
		return hostarch.PageSize
	}
	return 0
}

// fdOf returns the file that holds fr.
func (f *MemoryFile) fdOf(fr memmap.FileRange) int {
	if fr.Start < f.sealedEnd.Load() {
		return int(f.chunksLoad()[fr.Start/chunkSize].layer.Fd())
	}
	return f.FD()
}

// saveLayersLocked seals the newest layer and writes only metadata. f.mu is locked, nothing else uses f, and no page is waste.
func (f *MemoryFile) saveLayersLocked(w io.Writer, next *os.File) error {
	if err := f.sealLocked(next); err != nil {
		return fmt.Errorf("failed to seal a layer: %w", err)
	}
	pb := f.exportMetadataProto()
	pb.Version = layersVersion
	data, err := proto.Marshal(pb)
	if err != nil {
		return fmt.Errorf("failed to marshal metadata: %w", err)
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(data)))); err != nil {
		return fmt.Errorf("failed to write metadata length: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("failed to write metadata: %w", err)
	}
	return nil
}

func (f *MemoryFile) sealLocked(next *os.File) error {
	old := f.chunksLoad()
	begin, end := f.sealedEnd.Load(), uint64(len(old))*chunkSize
	if begin == end {
		// No page was written since the last checkpoint, but f must still write to the next layer: the checkpoint treats the current one as sealed.
		f.file.Close()
		f.file = next
		return nil
	}
	chunks := make([]chunkInfo, len(old))
	copy(chunks, old)
	for i := begin / chunkSize; i < uint64(len(chunks)); i++ {
		// A late write must end the sentry rather than change a checkpoint.
		if _, _, errno := unix.Syscall(unix.SYS_MPROTECT, chunks[i].mapping, chunkSize, unix.PROT_READ); errno != 0 {
			return errno
		}
		chunks[i].layer = f.file
	}
	// Free pages here stay free: a page of a sealed layer is never allocated again.
	for gap := f.unfreeSmall.FirstLargeEnoughGap(1); gap.Ok() && gap.Start() < end; gap = f.unfreeSmall.FirstLargeEnoughGap(1) {
		fr := gap.Range()
		fr.End = min(fr.End, end)
		f.unfreeSmall.Insert(gap, fr, unfreeInfo{})
	}
	f.chunks.Store(&chunks)
	f.file = next
	f.sealedEnd.Store(end)
	return nil
}

// dropSealedLocked ends the accounting of unreferenced pages in a sealed layer. The file keeps them, since other sandboxes may use it.
func (f *MemoryFile) dropSealedLocked(fr memmap.FileRange) {
	maseg := f.memAcct.LowerBoundSegmentSplitBefore(fr.Start)
	for maseg.Ok() && maseg.Start() < fr.End {
		maseg = f.memAcct.SplitAfter(maseg, fr.End)
		if ma := maseg.ValuePtr(); ma.knownCommitted {
			amount := maseg.Range().Length()
			f.knownCommittedBytes -= amount
			if !f.opts.DisableMemoryAccounting {
				usage.MemoryAccounting.Dec(amount, ma.kind, ma.memCgID)
			}
		}
		maseg = f.memAcct.Remove(maseg).NextSegment()
	}
}

// loadLayers maps the sealed layers after the metadata has been imported. If the file to write is itself one of them, the pages of
// all later layers are merged into it, since a few large layers cost less than many.
func (f *MemoryFile) loadLayers(pb *pgallocpb.MemoryFileMetadataProto) error {
	chunks := f.chunksLoad()
	begin, own := uint64(0), ^uint64(0)
	var ownStat unix.Stat_t
	if err := unix.Fstat(int(f.file.Fd()), &ownStat); err != nil {
		return fmt.Errorf("failed to stat MemoryFile: %w", err)
	}
	for i, layer := range f.layers {
		var stat unix.Stat_t
		if err := unix.Fstat(int(layer.Fd()), &stat); err != nil {
			return fmt.Errorf("failed to stat layer %d: %w", i, err)
		}
		if stat.Ino == ownStat.Ino && stat.Dev == ownStat.Dev {
			own = begin
			continue
		}
		size := uint64(stat.Size)
		if size%chunkSize != 0 || size <= begin || size > uint64(len(chunks))*chunkSize {
			return fmt.Errorf("layer %d ends at %#x, after one that ends at %#x, of %d chunks", i, size, begin, len(chunks))
		}
		m, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, uintptr(size-begin), unix.PROT_READ, unix.MAP_SHARED, layer.Fd(), uintptr(begin))
		if errno != 0 {
			return fmt.Errorf("failed to mmap layer %d: %w", i, errno)
		}
		for ; begin < size; begin += chunkSize {
			chunk := &chunks[begin/chunkSize]
			chunk.mapping = m
			chunk.layer = layer
			m += chunkSize
		}
	}
	if begin != uint64(len(chunks))*chunkSize {
		return fmt.Errorf("the layers end at %#x, of %d chunks", begin, len(chunks))
	}
	f.sealedEnd.Store(begin)
	if own < begin {
		if err := f.takeIn(own, begin); err != nil {
			return fmt.Errorf("failed to take in layers: %w", err)
		}
		f.freeSealed(pb, own+f.guardAt(own), begin)
	}
	for _, layer := range f.layers {
		if !f.standsOn(layer) {
			layer.Close()
		}
	}
	f.layers = nil
	for maseg := f.memAcct.FirstSegment(); maseg.Ok(); maseg = maseg.NextSegment() {
		if ma := maseg.ValuePtr(); ma.knownCommitted {
			amount := maseg.Range().Length()
			f.knownCommittedBytes += amount
			if !f.opts.DisableMemoryAccounting {
				usage.MemoryAccounting.Inc(amount, ma.kind, ma.memCgID)
			}
		}
	}
	return nil
}

func (f *MemoryFile) standsOn(layer *os.File) bool {
	for _, chunk := range f.chunksLoad() {
		if chunk.layer == layer {
			return true
		}
	}
	return false
}

// takeIn merges layers: it copies the pages of [from, end) to the same offsets of the file to write, and maps them from there.
func (f *MemoryFile) takeIn(from, end uint64) error {
	if err := f.file.Truncate(int64(end)); err != nil {
		return err
	}
	for maseg := f.memAcct.LowerBoundSegment(from); maseg.Ok(); maseg = maseg.NextSegment() {
		off, failed := int64(maseg.Start()), error(nil)
		f.forEachMappingSlice(maseg.Range(), func(bs []byte) {
			for len(bs) > 0 && failed == nil {
				n, err := unix.Pwrite(int(f.file.Fd()), bs, off)
				if err == nil && n == 0 {
					err = io.ErrShortWrite
				}
				failed = err
				if err == nil {
					bs = bs[n:]
					off += int64(n)
				}
			}
		})
		if failed != nil {
			return failed
		}
	}
	m, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, uintptr(end-from), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, f.file.Fd(), uintptr(from))
	if errno != 0 {
		return errno
	}
	chunks := f.chunksLoad()
	for off := from; off < end; off += chunkSize {
		chunk := &chunks[off/chunkSize]
		if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, chunk.mapping, chunkSize, 0); errno != 0 {
			return errno
		}
		chunk.mapping = m
		chunk.layer = nil
		m += chunkSize
	}
	f.sealedEnd.Store(from)
	return nil
}

// freeSealed makes unreferenced pages in [from, end) available again: their layers were sealed, and are writable after takeIn.
func (f *MemoryFile) freeSealed(pb *pgallocpb.MemoryFileMetadataProto, from, end uint64) {
	for _, s := range pb.UnfreeSmall {
		if fr := (memmap.FileRange{Start: max(s.Start, from), End: min(s.End, end)}); s.Refs == 0 && fr.Start < fr.End {
			f.unfreeSmall.RemoveRange(fr)
		}
	}
}
