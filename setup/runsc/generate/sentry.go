// The option sets of the sentry for which svc's runsc carries a seccomp program.
package config

import "gvisor.dev/gvisor/pkg/sentry/platform"

func optionsOfSvc() ([]Options, error) {
	constructor, err := platform.Lookup("systrap")
	if err != nil {
		return nil, err
	}
	var wanted []Options
	for _, info := range constructor.PrecompiledSeccompInfo() {
		for _, directfs := range []bool{true, false} {
			wanted = append(wanted, Options{Platform: info, HostFilesystem: directfs})
		}
	}
	return wanted, nil
}
