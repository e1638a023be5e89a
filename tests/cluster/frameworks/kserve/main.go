// KServe's controller of LLMInferenceServices, on loopback: its own program listens on all interfaces.
// Its webhooks, which only check objects, are left out.
package main

import (
	"flag"

	"github.com/kserve/kserve/pkg/apis/serving/v1alpha1"
	"github.com/kserve/kserve/pkg/controller/v1alpha1/llmisvc"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	probes := flag.String("probes", "127.0.0.1:8081", "address of the probes")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	config := ctrl.GetConfigOrDie()
	config.QPS, config.Burst = 500, 500
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: *probes,
	})
	utilruntime.Must(err)
	utilruntime.Must((&llmisvc.LLMISVCReconciler{
		Client:        mgr.GetClient(),
		Clientset:     kubernetes.NewForConfigOrDie(config),
		EventRecorder: mgr.GetEventRecorderFor("LLMInferenceService"),
	}).SetupWithManager(mgr))
	utilruntime.Must(mgr.AddReadyzCheck("readyz", healthz.Ping))
	utilruntime.Must(mgr.Start(ctrl.SetupSignalHandler()))
}
