module felice/gopeer

go 1.24

require (
	github.com/twmb/franz-go FRANZ_GO_VERSION
	github.com/twmb/franz-go/pkg/kadm KADM_VERSION
)
