// The option sets of the gofer for which svc's runsc carries a seccomp program.
package config

func optionsOfSvc() []Options {
	var wanted []Options
	for _, directfs := range []bool{true, false} {
		for _, lisafs := range []bool{true, false} {
			wanted = append(wanted, Options{DirectFS: directfs, LisafsNeeded: lisafs})
		}
	}
	return wanted
}
