// KServe's controllers of LLMInferenceServices and InferenceServices, on loopback: its own programs
// listen on all interfaces. Their webhooks, which default and check objects, are left out.
package main

import (
	"context"
	"flag"

	"github.com/kserve/kserve/pkg/apis/serving/v1alpha1"
	"github.com/kserve/kserve/pkg/apis/serving/v1beta1"
	"github.com/kserve/kserve/pkg/controller/v1alpha1/llmisvc"
	"github.com/kserve/kserve/pkg/controller/v1beta1/inferenceservice"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var setups = map[string]func(ctrl.Manager, kubernetes.Interface) error{
	"kserve":                   setupLLMInferenceServices,
	"kserve-inferenceservices": setupInferenceServices,
}

func main() {
	which := flag.String("controllers", "", "kserve or kserve-inferenceservices")
	probes := flag.String("probes", "127.0.0.1:8081", "address of the probes")
	flag.Parse()
	ctrl.SetLogger(zap.New())

	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	config := ctrl.GetConfigOrDie()
	config.QPS, config.Burst = 500, 500
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: *probes,
	})
	utilruntime.Must(err)
	utilruntime.Must(setups[*which](mgr, kubernetes.NewForConfigOrDie(config)))
	utilruntime.Must(mgr.AddReadyzCheck("readyz", healthz.Ping))
	utilruntime.Must(mgr.Start(ctrl.SetupSignalHandler()))
}

func setupLLMInferenceServices(mgr ctrl.Manager, clients kubernetes.Interface) error {
	return (&llmisvc.LLMISVCReconciler{
		Client:        mgr.GetClient(),
		Clientset:     clients,
		EventRecorder: mgr.GetEventRecorderFor("LLMInferenceService"),
	}).SetupWithManager(mgr)
}

// The ConfigMap must exist, as for KServe's own program.
func setupInferenceServices(mgr ctrl.Manager, clients kubernetes.Interface) error {
	settings, err := v1beta1.GetInferenceServiceConfigMap(context.Background(), clients)
	if err != nil {
		return err
	}
	deploy, err := v1beta1.NewDeployConfig(settings)
	if err != nil {
		return err
	}
	ingress, err := v1beta1.NewIngressConfig(settings)
	if err != nil {
		return err
	}
	return (&inferenceservice.InferenceServiceReconciler{
		Client:    mgr.GetClient(),
		Clientset: clients,
		Log:       ctrl.Log.WithName("InferenceService"),
		Scheme:    mgr.GetScheme(),
		Recorder:  mgr.GetEventRecorderFor("InferenceService"),
	}).SetupWithManager(mgr, deploy, ingress)
}
