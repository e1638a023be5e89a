// The MPI operator, with probes on loopback; its own program serves them on all interfaces.
package main

import (
	"flag"
	"net/http"
	"os"

	client "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpischeme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	probes := flag.String("probes", "127.0.0.1:8080", "address of the probes")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	config.QPS, config.Burst = 500, 500
	must(mpischeme.AddToScheme(scheme.Scheme))
	kube, jobs := kubernetes.NewForConfigOrDie(config), client.NewForConfigOrDie(config)
	shared := informers.NewSharedInformerFactory(kube, 0)
	own := mpiinformers.NewSharedInformerFactory(jobs, 0)
	made, err := controller.NewMPIJobController(
		kube, jobs, nil, nil,
		shared.Core().V1().ConfigMaps(), shared.Core().V1().Secrets(),
		shared.Core().V1().Services(), shared.Batch().V1().Jobs(), shared.Core().V1().Pods(),
		shared.Scheduling().V1().PriorityClasses(), own.Kubeflow().V2beta1().MPIJobs(), "", "",
	)
	must(err)
	stop := make(chan struct{})
	shared.Start(stop)
	own.Start(stop)
	go func() { must(made.Run(2, stop)) }()
	must(http.ListenAndServe(*probes, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
