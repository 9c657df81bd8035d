module github.com/pgelector/pgelector/hooks/otel

go 1.26.0

require (
	github.com/pgelector/pgelector v0.1.0
	go.opentelemetry.io/otel v1.25.0
	go.opentelemetry.io/otel/metric v1.25.0
	go.opentelemetry.io/otel/trace v1.25.0
)
