# Has a restore map the private memory of programs from the checkpoint instead of reading it, and the next checkpoint leave out what
# is mapped so: tune_mapped SOURCE, after tune_layers. Why stands in ARCHITECTURE.md.

tune_mapped() {
  local source=$1 file part
  for part in pgalloc mm kernel; do cp "$SVC_ROOT/setup/runsc/mapped/$part.go" "$source/pkg/sentry/$part/mapped.go"; done
  cp "$SVC_ROOT/setup/runsc/mapped/kept.go" "$source/pkg/sentry/pgalloc/kept.go"
  cp "$SVC_ROOT/setup/runsc/mapped/stateio.go" "$source/pkg/sentry/state/stateio/mapped.go"
  for part in boot container; do cp "$SVC_ROOT/setup/runsc/mapped/$part.go" "$source/runsc/$part/mapped.go"; done
  tune_mapped_file "$source/pkg/sentry/pgalloc"
  tune_kept "$source"
  # What is not private memory of one program must not pass for it.
  for file in mm/aio_context.go kernel/shm/shm.go kernel/kcov.go socket/netstack/packetmmap/ring_buffer.go fsimpl/tmpfs/regular_file.go; do
    replace_once "$source/pkg/sentry/$file" 'usage.Anonymous' 'usage.Tmpfs'
  done
  file=$source/pkg/sentry/fsimpl/iouringfs/iouringfs.go
  replace_once "$file" 'mf.Allocate(ringsBufferSize, pgalloc.AllocOpts{Kind: usage.Anonymous' 'mf.Allocate(ringsBufferSize, pgalloc.AllocOpts{Kind: usage.Tmpfs'
  replace_once "$file" 'mf.Allocate(sqEntriesSize, pgalloc.AllocOpts{Kind: usage.Anonymous' 'mf.Allocate(sqEntriesSize, pgalloc.AllocOpts{Kind: usage.Tmpfs'
  replace_once "$source/pkg/sentry/mm/pma.go" 'copyAR = pseg.Range().Intersect(hugeMaskAR)' \
    'copyAR = pseg.Range().Intersect(mm.copyAroundLocked(pseg, ar, hugeMaskAR))'
  replace_once "$source/pkg/sentry/mm/address_space.go" $'\t\tsetMapUnit(32 << 20)\n\t}\n' \
    $'\t\tsetMapUnit(32 << 20)\n\t} else if ok && mf.HasMapped(pseg.fileRange()) {\n\t\tsetMapUnit(mapUnitBytes)\n\t}\n'
  replace_once "$source/pkg/sentry/kernel/kernel.go" $'\t\ttimeline.Reached("Main MemoryFile loading started")\n' \
    $'\t\tk.copyMappedOnWrite()\n\t\ttimeline.Reached("Main MemoryFile loading started")\n'
  file=$source/pkg/sentry/platform/systrap/subprocess.go
  replace_once "$file" $'at hostarch.AccessType, precommit bool) error {\n\tfd, err := f.DataFD(fr)\n' \
    $'at hostarch.AccessType, precommit bool) error {\n\tif mf, ok := f.(*pgalloc.MemoryFile); ok && mf.HasMapped(fr) {\n\t\treturn mf.ForEachDataFD(fr, func(part memmap.FileRange, fd int, off uint64) error {\n\t\t\treturn s.mapFD(addr+hostarch.Addr(part.Start-fr.Start), fd, off, part.Length(), at, precommit)\n\t\t})\n\t}\n\tfd, err := f.DataFD(fr)\n'
  replace_once "$file" $'\t\treturn err\n\t}\n\tvar flags int\n\tif precommit {\n' \
    $'\t\treturn err\n\t}\n\treturn s.mapFD(addr, fd, fr.Start, fr.Length(), at, precommit)\n}\n\nfunc (s *subprocess) mapFD(addr hostarch.Addr, fd int, off, length uint64, at hostarch.AccessType, precommit bool) error {\n\tvar flags int\n\tif precommit {\n'
  replace_once "$file" $'\t_, err = s.syscall(\n\t\tunix.SYS_MMAP,\n\t\tarch.SyscallArgument{Value: uintptr(addr)},\n\t\tarch.SyscallArgument{Value: uintptr(fr.Length())},\n\t\tarch.SyscallArgument{Value: uintptr(at.Prot())},\n\t\tarch.SyscallArgument{Value: uintptr(flags | unix.MAP_SHARED | unix.MAP_FIXED)},\n\t\tarch.SyscallArgument{Value: uintptr(fd)},\n\t\tarch.SyscallArgument{Value: uintptr(fr.Start)})' \
    $'\t_, err := s.syscall(\n\t\tunix.SYS_MMAP,\n\t\tarch.SyscallArgument{Value: uintptr(addr)},\n\t\tarch.SyscallArgument{Value: uintptr(length)},\n\t\tarch.SyscallArgument{Value: uintptr(at.Prot())},\n\t\tarch.SyscallArgument{Value: uintptr(flags | unix.MAP_SHARED | unix.MAP_FIXED)},\n\t\tarch.SyscallArgument{Value: uintptr(fd)},\n\t\tarch.SyscallArgument{Value: uintptr(off)})'
}

tune_mapped_file() {
  local file=$1/pgalloc.go
  replace_once "$file" $'\tlayers []*os.File\n}' $'\tlayers []*os.File\n\n\tmapped atomic.Pointer[mappedPages]\n}'
  replace_once "$file" $'\thasUniqueRef := true\n\tf.mu.Lock()\n' $'\tif f.HasMapped(fr) {\n\t\treturn false\n\t}\n\thasUniqueRef := true\n\tf.mu.Lock()\n'
  replace_once "$file" $'\t\t\t\twasteFR := ufseg.Range()\n\t\t\t\tif wasteFR.Start < f.sealedEnd.Load() {\n\t\t\t\t\tf.dropSealedLocked(wasteFR)\n\t\t\t\t\treturn true\n\t\t\t\t}\n' \
    $'\t\t\t\tfor _, wasteFR := range f.wasteOfLocked(ufseg.Range()) {\n'
  replace_once "$file" $'\t\t\t\t\tapl.cancelWasteLoad(wasteFR)\n\t\t\t\t}\n' $'\t\t\t\t\tapl.cancelWasteLoad(wasteFR)\n\t\t\t\t}\n\t\t\t\t}\n'
  replace_once "$file" 'return uint64(stat.Blocks * 512), nil' 'return uint64(stat.Blocks*512) + f.mappedBytes(), nil'
  tune_mapped_load "$1/save_restore.go"
}

tune_mapped_load() {
  local file=$1
  replace_once "$file" 'if pb.Version != 1 && pb.Version != layersVersion {' 'if pb.Version != 1 && pb.Version != layersVersion && pb.Version != keptVersion {'
  replace_once "$file" $'\tif pb.Version == layersVersion {\n\t\treturn f.loadLayers(&pb)\n' \
    $'\tkept, err := readKept(r, pb.Version)\n\tif err != nil {\n\t\treturn err\n\t}\n\tif pb.Version == layersVersion {\n\t\treturn f.loadLayers(&pb)\n'
  replace_once "$file" $'\tminUnloadedInit := false\n' \
    $'\tminUnloadedInit := false\n\tmapped, err := f.newMapped(opts, kept)\n\tif err != nil {\n\t\treturn err\n\t}\n'
  replace_once "$file" $'\t\tmaFR := maseg.Range()\n\t\tamount := maFR.Length()\n\t\t// Wait for all chunks spanned by this segment to be madvised.\n\t\tfor madviseEnd.Load() < maFR.End {\n\t\t\t<-madviseChan\n\t\t}\n' \
    $'\t\tsegFR := maseg.Range()\n\t\t// Wait for all chunks spanned by this segment to be madvised.\n\t\tfor madviseEnd.Load() < segFR.End {\n\t\t\t<-madviseChan\n\t\t}\n\t\tfor _, maFR := range mapped.unkept(segFR) {\n\t\tamount := maFR.Length()\n'
  replace_once "$file" $'\t\tif amfl != nil {\n\t\t\t// Record where to read data.\n' \
    $'\t\tif mapped.take(maFR, maseg.ValuePtr().kind, chunks[maFR.Start/chunkSize].huge, opts.PagesFileOffset) {\n\t\t\topts.PagesFileOffset += amount\n\t\t} else if amfl != nil {\n\t\t\t// Record where to read data.\n'
  replace_once "$file" $'\t\t// Update accounting for restored pages.' $'\t\t}\n\t\tamount := segFR.Length()\n\n\t\t// Update accounting for restored pages.'
  replace_once "$file" $'\tdurPages := time.Duration(gohacks.Nanotime() - timePagesStart)\n\tif amfl != nil {\n' \
    $'\tif err := f.setMapped(mapped); err != nil {\n\t\treturn err\n\t}\n\tdurPages := time.Duration(gohacks.Nanotime() - timePagesStart)\n\tif amfl != nil {\n'
}

tune_kept() {
  local file=$1/pkg/sentry/pgalloc/save_restore.go
  replace_once "$file" $'\tasyncWritePages := func(fr memmap.FileRange) {}\n' \
    $'\tkept, err := f.keptLocked(opts)\n\tif err != nil {\n\t\treturn err\n\t}\n\tasyncWritePages := func(fr memmap.FileRange) {}\n'
  replace_once "$file" $'\t\tasyncWritePages = func(fr memmap.FileRange) {\n' $'\t\tasyncWritePages = kept.eachUnkept(func(fr memmap.FileRange) {\n'
  replace_once "$file" $'\t\t\tamfs.pf.stStatus.Notify(apsSTPending)\n\t\t}\n' $'\t\t\tamfs.pf.stStatus.Notify(apsSTPending)\n\t\t})\n'
  replace_once "$file" $'\tpb := f.exportMetadataProto()\n' $'\tpb := f.exportMetadataProto()\n\tkept.mark(pb)\n'
  replace_once "$file" $'\tlog.Infof("MemoryFile(%p): saved metadata in' $'\tif err := kept.writeTo(w); err != nil {\n\t\treturn err\n\t}\n\tlog.Infof("MemoryFile(%p): saved metadata in'
  file=$1/pkg/sentry/control/state.go
  replace_once "$file" $'\tHaveNextLayer bool `json:"have_next_layer"`\n' $'\tHaveNextLayer bool `json:"have_next_layer"`\n\tKeepMapped bool `json:"keep_mapped"`\n\tPreparePages bool `json:"prepare_pages"`\n'
  replace_once "$file" $'\t\tsaveOpts.PagesFile = stateio.NewPagesFileFDWriterDefault(int32(pagesFileFD))\n' \
    $'\t\tsaveOpts.PagesFile = stateio.NewPagesFileFDWriterDefault(int32(pagesFileFD))\n\t\tpgalloc.KeepMapped(o.KeepMapped)\n'
  replace_once "$1/runsc/boot/restore.go" $'\tdefer pgalloc.OfferNextLayer(nil)\n' $'\tdefer pgalloc.OfferNextLayer(nil)\n\tl.preparePages(o, saveOpts)\n'
  file=$1/pkg/sentry/state/stateio/fdwriter.go
  replace_once "$file" $'\treserved int64\n}' $'\treserved int64\n\n\tprepared int64\n}'
  replace_once "$file" $'func (w *FDWriter) Finalize() error {\n\treturn nil\n' $'func (w *FDWriter) Finalize() error {\n\treturn w.cutPrepared()\n'
  file=$1/runsc/boot/controller.go
  replace_once "$file" $'\t// 5. optional platform device file.\n' $'\t// 5. the pages files of earlier checkpoints that it is kept in.\n\t// 6. optional platform device file.\n'
  replace_once "$file" $'\tNumLayers int\n' $'\tNumLayers int\n\tNumEarlierPages int\n'
  replace_once "$1/runsc/boot/layers.go" $'\tfor i := end - o.NumLayers; i < end; i++ {\n' \
    $'\tif err := o.takeEarlierPages(end-o.NumEarlierPages, end); err != nil {\n\t\treturn err\n\t}\n\tend -= o.NumEarlierPages\n\tfor i := end - o.NumLayers; i < end; i++ {\n'
  file=$1/runsc/sandbox/sandbox.go
  replace_once "$file" 'networkArgs *boot.CreateLinksAndRoutesArgs, layers []*os.File) error {' 'networkArgs *boot.CreateLinksAndRoutesArgs, layers, earlierPages []*os.File) error {'
  replace_once "$file" $'\topt.NumLayers = len(layers)\n' \
    $'\topt.NumLayers = len(layers)\n\topt.FilePayload.Files = append(opt.FilePayload.Files, earlierPages...)\n\topt.NumEarlierPages = len(earlierPages)\n'
  replace_once "$file" $'\tNextLayer                 string\n' $'\tNextLayer                 string\n\tPreparePages              bool\n'
  replace_once "$file" $'\topt.HavePagesFile = len(files) > 1\n\tif opts.NextLayer == "" {\n' \
    $'\topt.HavePagesFile = len(files) > 1\n\topt.PreparePages = opts.PreparePages\n\tif opts.NextLayer == "" {\n'
  replace_once "$file" $'\topt.HaveNextLayer = true\n' \
    $'\topt.HaveNextLayer = true\n\t_, err = os.Stat(filepath.Join(filepath.Dir(opts.NextLayer), "runsc-pages-000000"))\n\topt.KeepMapped = err == nil\n'
  file=$1/runsc/cmd/checkpoint.go
  replace_once "$file" $'\tnextLayer                 string\n' $'\tnextLayer                 string\n\tpreparePages              bool\n'
  replace_once "$file" $'\tf.BoolVar(&c.leaveRunning' \
    $'\tf.BoolVar(&c.preparePages, "prepare-pages", false, "have the pages file take its space before the container stops for the checkpoint")\n\tf.BoolVar(&c.leaveRunning'
  replace_once "$file" $'\t\tNextLayer:                  c.nextLayer,\n' $'\t\tNextLayer:                  c.nextLayer,\n\t\tPreparePages:               c.preparePages,\n'
  file=$1/runsc/container/container.go
  replace_once "$file" $'\t\treturn c.Sandbox.Restore(conf, spec, c.ID, imagePath, direct, background, networkArgs, layers)' \
    $'\t\tearlierPages, err := c.earlierPages(conf.GetOverlay2(), imagePath)\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\treturn c.Sandbox.Restore(conf, spec, c.ID, imagePath, direct, background, networkArgs, layers, earlierPages)'
}
