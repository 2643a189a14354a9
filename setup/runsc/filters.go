// Writes runsc's seccomp programs as Go source, so that no sandbox compiles its own when it starts. Run inside runsc's module.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	sentry "gvisor.dev/gvisor/runsc/boot/filter/config"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
)

// Options that svc never switches on; with them a program is compiled at the start, as without this file.
var unused = []string{"HostNetwork=true", "NVProxy=true", "TPUProxy=true", "RDMAProxy=true", `Platform="kvm"`, `Platform="ptrace"`, `Platform="slimvm"`}

func isUnused(name string) bool {
	for _, option := range unused {
		if strings.Contains(name, option) {
			return true
		}
	}
	return false
}

func write(folder string, programs []precompiledseccomp.Program, err error) {
	if err != nil {
		log.Fatalf("%s: %v", folder, err)
	}
	count := 0
	var source strings.Builder
	source.WriteString("package filter\n\nimport \"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp\"\n\n")
	source.WriteString("func registerGenerated(programs map[string]precompiledseccomp.Program) {\n")
	for _, program := range programs {
		if !isUnused(program.Name) {
			source.WriteString(program.Registration("\t", "precompiledseccomp", "programs"))
			count++
		}
	}
	source.WriteString("}\n")
	if count == 0 {
		log.Fatalf("%s: none of its %d seccomp programs is one that svc uses", folder, len(programs))
	}
	if err := os.WriteFile(folder+"/filter_generated.go", []byte(source.String()), 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %d seccomp programs\n", folder, count)
}

func main() {
	programs, err := sentry.PrecompiledPrograms()
	write("runsc/boot/filter", programs, err)
	programs, err = gofer.PrecompiledPrograms()
	write("runsc/fsgofer/filter", programs, err)
}
