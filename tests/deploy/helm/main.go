// What `helm template` and `helm lint --strict` do with a chart, from helm's own packages. The rest of
// helm talks to clusters and registries, and takes most of the time that building it takes.
//
//	helm-render CHART NAMESPACE <values.yaml
//
// The templates as they would be applied go to standard output; what is wrong goes to standard
// error, and the exit code is 1.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

func main() {
	if err := render(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(directory, namespace string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	values, err := common.ReadValues(text)
	if err != nil {
		return err
	}
	for _, message := range lint.RunAll(directory, values, namespace).Messages {
		if message.Severity >= support.WarningSev {
			return message
		}
	}
	chart, err := loader.Load(directory)
	if err != nil {
		return err
	}
	release := common.ReleaseOptions{Name: "release", Namespace: namespace, Revision: 1, IsInstall: true}
	merged, err := util.ToRenderValues(chart, values, release, common.DefaultCapabilities)
	if err != nil {
		return err
	}
	files, err := engine.Render(chart, merged)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			fmt.Printf("---\n# Source: %s\n%s\n", name, files[name])
		}
	}
	return nil
}
