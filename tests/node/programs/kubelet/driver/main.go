// A DRA driver whose devices are what a file says, however partitioned or shared they are.
//
//	driver NODE KUBECONFIG DIRECTORY
//
// DIRECTORY/resources.json is a resourceslice.DriverResources, published at the start and whenever
// the file changes. A prepared claim gets one CDI device per result, which puts the result into the
// container's environment: DEVICE_<claim>_<n>={"request", "pool", "device", "shareID", "consumedCapacity"}.
// While DIRECTORY/refusal exists every prepare fails with its text. DIRECTORY/calls.log has one line
// per claim: "prepare UID", "refuse UID" or "unprepare UID".
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	driverName = "parts.kai.test"
	cdiKind    = driverName + "/device"
	cdiRoot    = "/var/run/cdi"
	pluginDir  = "/var/lib/kubelet/plugins/" + driverName
)

type driver struct{ directory string }

func main() {
	node, kubeconfig, directory := os.Args[1], os.Args[2], os.Args[3]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	check(err)
	client, err := kubernetes.NewForConfig(config)
	check(err)
	check(os.MkdirAll(pluginDir, 0o750))
	helper, err := kubeletplugin.Start(ctx, driver{directory},
		kubeletplugin.DriverName(driverName),
		kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(client),
		kubeletplugin.PluginDataDirectoryPath(pluginDir))
	check(err)
	defer helper.Stop()
	publish(ctx, helper, filepath.Join(directory, "resources.json"))
}

func publish(ctx context.Context, helper *kubeletplugin.Helper, path string) {
	var published string
	for ctx.Err() == nil {
		content, err := os.ReadFile(path)
		check(err)
		if string(content) != published {
			var resources resourceslice.DriverResources
			check(json.Unmarshal(content, &resources))
			check(helper.PublishResources(ctx, resources))
			published = string(content)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (d driver) PrepareResourceClaims(
	_ context.Context, claims []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		refusal, err := os.ReadFile(filepath.Join(d.directory, "refusal"))
		if err == nil {
			d.record("refuse", claim.UID)
			results[claim.UID] = kubeletplugin.PrepareResult{Err: errors.New(strings.TrimSpace(string(refusal)))}
			continue
		}
		devices, err := prepare(claim)
		d.record("prepare", claim.UID)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d driver) UnprepareResourceClaims(
	_ context.Context, claims []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		err := os.Remove(specification(claim.UID))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		d.record("unprepare", claim.UID)
		results[claim.UID] = err
	}
	return results, nil
}

func (d driver) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %v", message, err)
}

func prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	var prepared []kubeletplugin.Device
	var devices []map[string]any
	for number, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver != driverName {
			continue
		}
		told, err := json.Marshal(map[string]any{
			"request": result.Request, "pool": result.Pool, "device": result.Device,
			"shareID": result.ShareID, "consumedCapacity": result.ConsumedCapacity,
		})
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s-%d", claim.UID, number)
		// Containers of several claims have one environment.
		variable := fmt.Sprintf("DEVICE_%s_%d=%s", strings.ReplaceAll(string(claim.UID), "-", ""), number, told)
		devices = append(devices, map[string]any{
			"name": name, "containerEdits": map[string]any{"env": []string{variable}},
		})
		prepared = append(prepared, kubeletplugin.Device{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
			ShareID: result.ShareID, CDIDeviceIDs: []string{cdiKind + "=" + name},
		})
	}
	content, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": cdiKind, "devices": devices})
	if err != nil {
		return nil, err
	}
	unfinished := specification(claim.UID) + ".tmp"
	if err := os.WriteFile(unfinished, content, 0o644); err != nil {
		return nil, err
	}
	return prepared, os.Rename(unfinished, specification(claim.UID))
}

func specification(claim types.UID) string {
	return filepath.Join(cdiRoot, driverName+"-"+string(claim)+".json")
}

func (d driver) record(call string, claim types.UID) {
	path := filepath.Join(d.directory, "calls.log")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	check(err)
	defer file.Close()
	fmt.Fprintf(file, "%s %s\n", call, claim)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
