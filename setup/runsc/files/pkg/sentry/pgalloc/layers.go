// Layers: the pages of a memory file that lies on disk are in several files, of which only the newest is ever written.
//
// A checkpoint seals the newest, and the sandbox writes to an empty one above it. So the checkpoint need not hold any page itself,
// and a start from it maps the sealed files as they are. Layer n holds the chunks from the end of layer n-1 to its own size.
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

// layersVersion is the version of metadata whose pages are in layers, and not in the pages file.
const layersVersion = 2

const (
	// maxLayers bounds what a start has to open, and how long what nobody refers to stays.
	maxLayers = 64
	// maxLeftBytes may be unused in layers of small sandboxes, too.
	maxLeftBytes = 64 << 20
)

// nextLayer is the file that the memory file writes to after the running checkpoint; nil for a checkpoint that holds all pages.
var nextLayer atomic.Pointer[os.File]

// OfferNextLayer has the next checkpoint seal the layers that it finds, and the sandbox write to file after it.
func OfferNextLayer(file *os.File) {
	if old := nextLayer.Swap(file); old != nil {
		old.Close()
	}
}

// takeNextLayerLocked returns nil where the checkpoint shall hold all pages: not asked otherwise, or too much is in the layers
// that nobody refers to any more. Who starts from such a checkpoint has a single layer again.
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

// SetLayers names the sealed files that a checkpoint to load lies on, oldest first; see loadLayers.
func (f *MemoryFile) SetLayers(files []*os.File) {
	f.layers = files
}

// SealedEnd is where pages begin that may be written; those before are mapped read-only.
func (f *MemoryFile) SealedEnd() uint64 {
	return f.sealedEnd.Load()
}

// guardAt is how much of the chunk at off is never given out: without a gap, two allocations on both sides of a layer's
// beginning could be taken for one, and mapped from one of its files.
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

// saveLayersLocked seals what there is and writes its metadata alone. f.mu is locked, nothing else uses f, and no page is waste.
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
		// No page was written; yet a checkpoint that names the next layer takes all before it for sealed.
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

// dropSealedLocked forgets pages of a sealed layer that nobody refers to any more; they stay in their file, which others may use.
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

// loadLayers maps the layers that the metadata, which has been imported, lies on. Where the file to write stands among them, it
// takes in what lies in those after it: few and large layers cost less than many.
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

// takeIn copies the pages of [from, end) to where they lie in the file to write, and maps them there.
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

// freeSealed gives back what was never given out again in [from, end), where layers were sealed that now may be written.
func (f *MemoryFile) freeSealed(pb *pgallocpb.MemoryFileMetadataProto, from, end uint64) {
	for _, s := range pb.UnfreeSmall {
		if fr := (memmap.FileRange{Start: max(s.Start, from), End: min(s.End, end)}); s.Refs == 0 && fr.Start < fr.End {
			f.unfreeSmall.RemoveRange(fr)
		}
	}
}
