// A device plugin for GPUs that do not exist, like NVIDIA's as far as containers see it.
//
//	plugin NODE COUNT
//
// offers nvidia.com/gpu as devices GPU-NODE-0, GPU-NODE-1, … to the kubelet; a container that gets
// some finds them in its environment, NVIDIA_VISIBLE_DEVICES.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const socket = "gpu.kai.test.sock"

type gpus struct {
	plugin.UnimplementedDevicePluginServer
	devices []*plugin.Device
}

func main() {
	count, err := strconv.Atoi(os.Args[2])
	check(err)
	var offered gpus
	for number := range count {
		id := fmt.Sprintf("GPU-%s-%d", os.Args[1], number)
		offered.devices = append(offered.devices, &plugin.Device{ID: id, Health: plugin.Healthy})
	}
	path := plugin.DevicePluginPath + socket
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	check(err)
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, offered)
	go register()
	check(server.Serve(listener))
}

func register() {
	connection, err := grpc.NewClient(
		"unix://"+plugin.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer connection.Close()
	_, err = plugin.NewRegistrationClient(connection).Register(context.Background(),
		&plugin.RegisterRequest{
			Version: plugin.Version, Endpoint: socket, ResourceName: "nvidia.com/gpu",
		}, grpc.WaitForReady(true))
	check(err)
}

func (g gpus) GetDevicePluginOptions(
	context.Context, *plugin.Empty,
) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (g gpus) ListAndWatch(_ *plugin.Empty, stream plugin.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&plugin.ListAndWatchResponse{Devices: g.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (g gpus) Allocate(
	_ context.Context, request *plugin.AllocateRequest,
) (*plugin.AllocateResponse, error) {
	var response plugin.AllocateResponse
	for _, container := range request.ContainerRequests {
		visible := strings.Join(container.DevicesIds, ",")
		response.ContainerResponses = append(response.ContainerResponses,
			&plugin.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": visible}})
	}
	return &response, nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
