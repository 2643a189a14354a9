// A sandbox may be created before it is known what will be restored into it, so the restore brings the root container's host name
// and layers.
package boot

// takeRoot takes the root's host name, its earlier pages files and its layers from the restore's options; see configureRestore.
func (cm *containerManager) takeRoot(o *RestoreOpts) error {
	cm.l.root.spec.Hostname = o.Hostname
	end := len(o.Files)
	if o.HaveDeviceFile {
		end--
	}
	if err := o.takeEarlierPages(end-o.NumEarlierPages, end); err != nil {
		return err
	}
	end -= o.NumEarlierPages
	for i := end - o.NumLayers; i < end; i++ {
		layer, err := o.ReleaseFD(i)
		if err != nil {
			return err
		}
		cm.l.root.goferFilestoreFDs = append(cm.l.root.goferFilestoreFDs, layer)
	}
	return nil
}
