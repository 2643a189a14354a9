// A sandbox may be made before the restore that fills it, so only the restore knows the root container's name and layers.
package boot

// takeRoot adds the layers to the file that the root will write; see configureRestore.
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
