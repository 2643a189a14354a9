# Keeps what a sandbox writes in files of its own beside a checkpoint: tune_layers SOURCE. Why stands in ARCHITECTURE.md.

tune_layers() {
  local source=$1 file
  cp "$SVC_ROOT/setup/runsc/layers/pgalloc.go" "$source/pkg/sentry/pgalloc/layers.go"
  cp "$SVC_ROOT/setup/runsc/layers/tmpfs.go" "$source/pkg/sentry/fsimpl/tmpfs/layers.go"
  cp "$SVC_ROOT/setup/runsc/layers/container.go" "$source/runsc/container/layers.go"
  cp "$SVC_ROOT/setup/runsc/layers/boot.go" "$source/runsc/boot/layers.go"
  tune_memory_file "$source/pkg/sentry/pgalloc"
  tune_tmpfs "$source/pkg/sentry/fsimpl/tmpfs/regular_file.go"
  tune_restore "$source"
  tune_checkpoint "$source"
}

tune_memory_file() {
  local file=$1/pgalloc.go
  replace_once "$file" $'\tchunks atomic.Pointer[[]chunkInfo]\n}' \
    $'\tchunks atomic.Pointer[[]chunkInfo]\n\n\tsealedEnd atomicbitops.Uint64\n\tlayers []*os.File\n}'
  replace_once "$file" $'\tmapping uintptr `state:"nosave"`\n' $'\tmapping uintptr `state:"nosave"`\n\n\tlayer *os.File `state:"nosave"`\n'
  replace_once "$file" 'incNrChunks := (alloc.length + chunkMask - tail) / chunkSize' \
    $'guard := f.guardAt(oldFileSize)\n\tincNrChunks := (alloc.length + guard + chunkMask - tail) / chunkSize'
  replace_once "$file" $'\t\tStart: oldNrChunks * chunkSize,\n' $'\t\tStart: oldNrChunks*chunkSize + guard,\n'
  replace_once "$file" $'\t\t\t\twasteFR := ufseg.Range()\n' \
    $'\t\t\t\twasteFR := ufseg.Range()\n\t\t\t\tif wasteFR.Start < f.sealedEnd.Load() {\n\t\t\t\t\tf.dropSealedLocked(wasteFR)\n\t\t\t\t\treturn true\n\t\t\t\t}\n'
  replace_once "$file" 'return f.FD(), nil' 'return f.fdOf(fr), nil'
  file=$1/save_restore.go
  replace_once "$file" $'\t// Register this MemoryFile with async page saving if a pages file has been\n\t// provided.\n\tvar amfs' \
    $'\tif next := f.takeNextLayerLocked(); next != nil {\n\t\treturn f.saveLayersLocked(w, next)\n\t}\n\n\tvar amfs'
  replace_once "$file" 'if pb.Version != 1 {' 'if pb.Version != 1 && pb.Version != layersVersion {'
  replace_once "$file" $'\tfileSize := uint64(len(chunks)) * chunkSize\n\tif err :=' \
    $'\tif pb.Version == layersVersion {\n\t\treturn f.loadLayers(&pb)\n\t}\n\tf.freeSealed(&pb, 0, uint64(len(chunks))*chunkSize)\n\n\tfileSize := uint64(len(chunks)) * chunkSize\n\tif err :='
}

tune_tmpfs() {
  local file=$1
  replace_once "$file" $'\tsize atomicbitops.Uint64\n}' $'\tsize atomicbitops.Uint64\n\n\twasMappedForWriting bool `state:"nosave"`\n}'
  replace_once "$file" $'\trf.size.Store(newSize)\n\trf.dataMu.Unlock()\n' \
    $'\tvar tail memmap.MappableRange\n\tvar changed bool\n\tif newSize%hostarch.PageSize != 0 {\n\t\ttail = memmap.MappableRange{Start: hostarch.PageRoundDown(newSize), End: offsetPageEnd(int64(newSize))}\n\t\tvar err error\n\t\tif changed, err = rf.unsealLocked(tail, 0); err != nil {\n\t\t\trf.dataMu.Unlock()\n\t\t\treturn err\n\t\t}\n\t}\n\trf.size.Store(newSize)\n\trf.dataMu.Unlock()\n\tif changed {\n\t\trf.dropTranslations(tail)\n\t}\n'
  replace_once "$file" $'\trf.mapsMu.Lock()\n\tdefer rf.mapsMu.Unlock()\n\trf.dataMu.RLock()' \
    $'\trf.mapsMu.Lock()\n\tdefer rf.mapsMu.Unlock()\n\tif writable {\n\t\trf.beforeMappingForWriting()\n\t}\n\trf.dataMu.RLock()'
  replace_once "$file" $'\t// translateRange bounds how far' \
    $'\tif at.Write || rf.isMappedForWriting() {\n\t\tif _, err := rf.unsealLocked(fillRange, memCgID); err != nil {\n\t\t\treturn nil, &memmap.BusError{err}\n\t\t}\n\t}\n\n\t// translateRange bounds how far'
  replace_once "$file" 'Perms:  hostarch.AnyAccess,' 'Perms:  rf.permsOf(seg.FileRangeOf(segMR)),'
  replace_once "$file" $'func (*regularFile) InvalidateUnsavable(context.Context) error {\n' \
    $'func (rf *regularFile) InvalidateUnsavable(context.Context) error {\n\trf.dropTranslationsForSave()\n'
  replace_once "$file" $'\t// Perform the write.\n' \
    $'\tif err := f.unseal(offset, srclen, pgalloc.MemoryCgroupIDFromContext(ctx)); err != nil {\n\t\treturn 0, offset, err\n\t}\n\n\t// Perform the write.\n'
}

tune_restore() {
  local file=$1/runsc/container/container.go
  replace_once "$file" 'os.CreateTemp(path.Join(goferRootfs, filestoreDir), "runsc-filestore-")' 'createLayer(path.Join(goferRootfs, filestoreDir))'
  replace_once "$file" $'\tif err := unix.Unlink(filestoreFile.Name()); err != nil {\n\t\treturn nil, fmt.Errorf("failed to unlink temporary file %q: %v", filestoreFile.Name(), err)\n\t}\n' ''
  replace_once "$file" $'\trestore := func(conf *config.Config, spec *specs.Spec) error {\n\t\treturn c.Sandbox.Restore(conf, spec, c.ID, imagePath, direct, background, networkArgs)' \
    $'\trestore := func(conf *config.Config, spec *specs.Spec) error {\n\t\tlayers, err := c.sealedLayers(conf.GetOverlay2())\n\t\tif err != nil {\n\t\t\treturn err\n\t\t}\n\t\treturn c.Sandbox.Restore(conf, spec, c.ID, imagePath, direct, background, networkArgs, layers)'
  file=$1/runsc/sandbox/sandbox.go
  replace_once "$file" 'imagePath string, direct, background bool, networkArgs *boot.CreateLinksAndRoutesArgs) error {' \
    'imagePath string, direct, background bool, networkArgs *boot.CreateLinksAndRoutesArgs, layers []*os.File) error {'
  replace_once "$file" $'\tif err := s.setRestoreOpts(conf, imagePath, direct, &opt); err != nil {\n\t\treturn err\n\t}\n' \
    $'\tif err := s.setRestoreOpts(conf, imagePath, direct, &opt); err != nil {\n\t\treturn err\n\t}\n\topt.FilePayload.Files = append(opt.FilePayload.Files, layers...)\n\topt.NumLayers = len(layers)\n\topt.Hostname = spec.Hostname\n'
  file=$1/runsc/cmd/restore.go
  replace_once "$file" $'\tbackground bool\n' $'\tbackground bool\n\n\thostname string\n'
  replace_once "$file" $'\tf.BoolVar(&r.background' \
    $'\tf.StringVar(&r.hostname, "hostname", "", "the container\'s hostname, where it was created with another")\n\tf.BoolVar(&r.background'
  replace_once "$file" $'\t\trunArgs.Spec = c.Spec\n' $'\t\tif r.hostname != "" {\n\t\t\tc.Spec.Hostname = r.hostname\n\t\t}\n\t\trunArgs.Spec = c.Spec\n'
  file=$1/runsc/boot/controller.go
  replace_once "$file" $'\t// 4. optional platform device file.\n\turpc.FilePayload\n' \
    $'\t// 4. the layers that the checkpoint lies on, oldest first.\n\t// 5. optional platform device file.\n\turpc.FilePayload\n\tNumLayers int\n\tHostname string\n'
  replace_once "$file" $'\ttimer.Reached("got restore readers")\n' \
    $'\ttimer.Reached("got restore readers")\n\tif err := cm.takeRoot(o); err != nil {\n\t\treturn err\n\t}\n'
  file=$1/runsc/boot/vfs.go
  replace_once "$file" $'\t\trestoreMnts.mfmap[rootKey] = mf\n' \
    $'\t\trestoreMnts.mfmap[rootKey] = mf\n\t\tvar layers []*os.File\n\t\tfor !c.goferFilestoreFDs.empty() {\n\t\t\tlayers = append(layers, c.goferFilestoreFDs.removeAsFD().ReleaseToFile("overlay-layer"))\n\t\t}\n\t\tmf.SetLayers(layers)\n'
}

tune_checkpoint() {
  local file=$1/pkg/sentry/control/state.go
  replace_once "$file" $'\t// FilePayload contains the following:\n\t// 1. checkpoint state file.\n' \
    $'\tHaveNextLayer bool `json:"have_next_layer"`\n\n\t// FilePayload contains the following, and the next layer:\n\t// 1. checkpoint state file.\n'
  replace_once "$file" $'\t\twantFiles += 2\n\t}\n' $'\t\twantFiles += 2\n\t}\n\tif o.HaveNextLayer {\n\t\twantFiles++\n\t}\n'
  replace_once "$file" $'\t\tsaveOpts.PagesFile = stateio.NewPagesFileFDWriterDefault(int32(pagesFileFD))\n' \
    $'\t\tsaveOpts.PagesFile = stateio.NewPagesFileFDWriterDefault(int32(pagesFileFD))\n\t\tif o.HaveNextLayer {\n\t\t\tnext, err := o.ReleaseFD(3)\n\t\t\tif err != nil {\n\t\t\t\treturn err\n\t\t\t}\n\t\t\tpgalloc.OfferNextLayer(next.ReleaseToFile("layer"))\n\t\t}\n'
  replace_once "$file" $'\t"gvisor.dev/gvisor/pkg/sentry/limits"\n' $'\t"gvisor.dev/gvisor/pkg/sentry/limits"\n\t"gvisor.dev/gvisor/pkg/sentry/pgalloc"\n'
  replace_once "$1/runsc/boot/restore.go" $'\tdefer saveOpts.Close()\n\n\treturn l.saveWithOpts' \
    $'\tdefer saveOpts.Close()\n\tdefer pgalloc.OfferNextLayer(nil)\n\n\treturn l.saveWithOpts'
  file=$1/runsc/sandbox/sandbox.go
  replace_once "$file" $'\tResume                    bool\n\tDirect                    bool\n\tExcludeCommittedZeroPages bool\n' \
    $'\tResume                    bool\n\tDirect                    bool\n\tExcludeCommittedZeroPages bool\n\tNextLayer                 string\n'
  replace_once "$file" $'\topt.FilePayload.Files = files\n\topt.HavePagesFile = len(files) > 1\n\treturn nil\n}\n\n// createSaveFiles' \
    $'\topt.FilePayload.Files = files\n\topt.HavePagesFile = len(files) > 1\n\tif opts.NextLayer == "" {\n\t\treturn nil\n\t}\n\tnext, err := os.OpenFile(opts.NextLayer, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0600)\n\tif err != nil {\n\t\treturn fmt.Errorf("creating layer %q: %w", opts.NextLayer, err)\n\t}\n\topt.FilePayload.Files = append(opt.FilePayload.Files, next)\n\topt.HaveNextLayer = true\n\treturn nil\n}\n\n// createSaveFiles'
  file=$1/runsc/cmd/checkpoint.go
  replace_once "$file" $'\tleaveRunning              bool\n' $'\tleaveRunning              bool\n\tnextLayer                 string\n'
  replace_once "$file" $'\tf.BoolVar(&c.leaveRunning' \
    $'\tf.StringVar(&c.nextLayer, "next-layer", "", "file to make, in which the container\'s root goes on; what it wrote so far is left in the files before")\n\tf.BoolVar(&c.leaveRunning'
  replace_once "$file" $'\t\tResume:                     c.leaveRunning,\n' $'\t\tResume:                     c.leaveRunning,\n\t\tNextLayer:                  c.nextLayer,\n'
}
