// Command allocations says which devices kube-scheduler's own allocator gives to claims. It reads
// questions as JSON, one a line, and writes for each the allocations, or nothing, or the error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
)

const timeLimit = time.Second

// features are those that are on by default in this release.
var features = structured.Features{
	AdminAccess:            true,
	ConsumableCapacity:     true,
	DeviceBindingAndStatus: true,
	DeviceTaints:           true,
	PartitionableDevices:   true,
	PrioritizedList:        true,
}

type question struct {
	Node      *v1.Node                                     `json:"node"`
	Slices    []*resourceapi.ResourceSlice                 `json:"slices"`
	Classes   classes                                      `json:"classes"`
	Claims    []*resourceapi.ResourceClaim                 `json:"claims"`
	Allocated []*resourceapi.DeviceRequestAllocationResult `json:"allocated"`
}

type answer struct {
	Allocations []resourceapi.AllocationResult `json:"allocations"`
	Error       string                         `json:"error,omitempty"`
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return c, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, each := range c {
		if each.Name == name {
			return each, nil
		}
	}
	return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclass"), name)
}

func main() {
	klog.LogToStderr(false)
	expressions := cel.NewCache(100, cel.Features{EnableConsumableCapacity: true})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<26)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var asked question
		if err := json.Unmarshal(in.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		found, err := allocate(asked, expressions)
		given := answer{Allocations: found}
		if err != nil {
			given.Error = err.Error()
		}
		if err := out.Encode(given); err != nil {
			log.Fatal(err)
		}
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}

func allocate(asked question, expressions *cel.Cache) ([]resourceapi.AllocationResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	allocator, err := structured.NewAllocator(
		ctx, features, inUse(asked.Allocated), asked.Classes, asked.Slices, expressions)
	if err != nil {
		return nil, err
	}
	return allocator.Allocate(ctx, asked.Node, asked.Claims)
}

// inUse tells shares from whole devices, as the scheduler does.
func inUse(allocated []*resourceapi.DeviceRequestAllocationResult) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, each := range allocated {
		id := structured.MakeDeviceID(each.Driver, each.Pool, each.Device)
		if each.ShareID == nil {
			state.AllocatedDevices.Insert(id)
			continue
		}
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, each.ShareID))
		state.AggregatedCapacity.Insert(
			structured.NewDeviceConsumedCapacity(id, each.ConsumedCapacity))
	}
	return state
}
