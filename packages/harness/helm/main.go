// Renders a chart as `helm template` does, with the released engine of Helm: values are checked by the chart's schema, and defaults are merged.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func main() {
	if err := render(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// render expects CHART NAMESPACE [VALUES-FILE]...; later files win.
func render(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("expected CHART NAMESPACE [VALUES-FILE]..., got %d arguments", len(args))
	}
	chart, err := loader.Load(args[0])
	if err != nil {
		return err
	}
	values := chartutil.Values{}
	for _, file := range args[2:] {
		more, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return err
		}
		values = chartutil.CoalesceTables(more, values)
	}
	release := chartutil.ReleaseOptions{Name: "svc", Namespace: args[1], Revision: 1, IsInstall: true}
	merged, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return err
	}
	rendered, err := engine.Engine{Strict: true}.Render(chart, merged)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		if strings.TrimSpace(rendered[name]) != "" {
			fmt.Printf("---\n# Source: %s\n%s\n", name, rendered[name])
		}
	}
	return nil
}
