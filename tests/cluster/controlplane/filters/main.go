// Command filters says on which nodes kube-scheduler's own filter plugins let a pod pass. It reads
// clusters as JSON, one a line, and writes for each pod that is asked about the names of its nodes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"os"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	_ "k8s.io/kubernetes/pkg/features" // registers the gates
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/interpodaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeunschedulable"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumerestrictions"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumezone"
	schedruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

type cluster struct {
	Namespaces []*v1.Namespace `json:"namespaces"`
	Nodes      []*v1.Node      `json:"nodes"`
	Pods       []*v1.Pod       `json:"pods"`
	Asked      []*v1.Pod       `json:"asked"`

	Volumes     []*v1.PersistentVolume          `json:"persistentvolumes"`
	Claims      []*v1.PersistentVolumeClaim     `json:"persistentvolumeclaims"`
	Classes     []*storagev1.StorageClass       `json:"storageclasses"`
	Drivers     []*storagev1.CSIDriver          `json:"csidrivers"`
	NodeDrivers []*storagev1.CSINode            `json:"csinodes"`
	Capacities  []*storagev1.CSIStorageCapacity `json:"csistoragecapacities"`
	Attachments []*storagev1.VolumeAttachment   `json:"volumeattachments"`
}

func (read cluster) objects() []runtime.Object {
	return slices.Concat(
		listed(read.Namespaces), listed(read.Nodes), listed(read.Volumes), listed(read.Claims),
		listed(read.Classes), listed(read.Drivers), listed(read.NodeDrivers),
		listed(read.Capacities), listed(read.Attachments),
	)
}

func listed[T runtime.Object](objects []T) []runtime.Object {
	found := []runtime.Object{}
	for _, each := range objects {
		found = append(found, each)
	}
	return found
}

type maker struct {
	make schedruntime.PluginFactory
	args runtime.Object
}

// features are those that are on by default in this release.
var features = feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)

var makers = []maker{
	{schedruntime.FactoryAdapter(features, nodeunschedulable.New), nil},
	{schedruntime.FactoryAdapter(features, tainttoleration.New), nil},
	{schedruntime.FactoryAdapter(features, nodeaffinity.New), &config.NodeAffinityArgs{}},
	{schedruntime.FactoryAdapter(features, noderesources.NewFit), &config.NodeResourcesFitArgs{
		ScoringStrategy: &config.ScoringStrategy{
			Type:      config.LeastAllocated,
			Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}},
		},
	}},
	{schedruntime.FactoryAdapter(features, interpodaffinity.New), &config.InterPodAffinityArgs{}},
	{schedruntime.FactoryAdapter(features, podtopologyspread.New),
		&config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting}},
	{schedruntime.FactoryAdapter(features, nodeports.New), nil},
	{schedruntime.FactoryAdapter(features, volumerestrictions.New), nil},
	{schedruntime.FactoryAdapter(features, nodevolumelimits.NewCSI), nil},
	{schedruntime.FactoryAdapter(features, volumebinding.New), &config.VolumeBindingArgs{}},
	{schedruntime.FactoryAdapter(features, volumezone.New), nil},
}

func main() {
	klog.LogToStderr(false)
	metrics.InitMetrics()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<26)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var read cluster
		if err := json.Unmarshal(in.Bytes(), &read); err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(answers(read)); err != nil {
			log.Fatal(err)
		}
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}

func answers(read cluster) [][]string {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	snapshot := cache.NewSnapshot(read.Pods, read.Nodes)
	factory := informers.NewSharedInformerFactory(fake.NewClientset(read.objects()...), 0)
	csiNodes := factory.Storage().V1().CSINodes().Lister()
	handle, err := schedruntime.NewFramework(ctx, nil, nil,
		schedruntime.WithSnapshotSharedLister(snapshot), schedruntime.WithInformerFactory(factory),
		schedruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(csiNodes)))
	if err != nil {
		log.Fatal(err)
	}
	plugins := []fwk.Plugin{}
	for _, each := range makers {
		plugin, err := each.make(ctx, each.args, handle)
		if err != nil {
			log.Fatal(err)
		}
		plugins = append(plugins, plugin)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		log.Fatal(err)
	}
	found := [][]string{}
	for _, pod := range read.Asked {
		names := []string{}
		for _, node := range nodes {
			if passes(ctx, plugins, pod, node, nodes) {
				names = append(names, node.Node().Name)
			}
		}
		found = append(found, names)
	}
	return found
}

func passes(
	ctx context.Context, plugins []fwk.Plugin, pod *v1.Pod, node fwk.NodeInfo, nodes []fwk.NodeInfo,
) bool {
	state := framework.NewCycleState()
	for _, plugin := range plugins {
		if first, ok := plugin.(fwk.PreFilterPlugin); ok {
			result, status := first.PreFilter(ctx, state, pod, nodes)
			if status.IsSkip() {
				continue
			}
			if !status.IsSuccess() {
				return false
			}
			if result != nil && result.NodeNames != nil && !result.NodeNames.Has(node.Node().Name) {
				return false
			}
		}
		if filter, ok := plugin.(fwk.FilterPlugin); ok {
			if !filter.Filter(ctx, state, pod, node).IsSuccess() {
				return false
			}
		}
	}
	return true
}
