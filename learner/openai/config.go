package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
)

// Config says which service makes the models and how.
type Config struct {
	// Model is what is tuned when a job names nothing else, such as
	// gpt-4.1-mini-2025-04-14; required.
	Model string `yaml:"model"`
	// BaseURL is the service; empty means https://api.openai.com/v1. With Azure it
	// is the resource, as in https://NAME.openai.azure.com, and required.
	BaseURL string `yaml:"base_url"`
	// APIKeyEnv names the variable of the environment with the key; empty means
	// OPENAI_API_KEY, with Azure AZURE_OPENAI_API_KEY. The proxy calls the new
	// model with the variable of the same name in the server's environment.
	APIKeyEnv string `yaml:"api_key_env"`
	// Organization and Project are sent to OpenAI; empty sends none.
	Organization string `yaml:"organization"`
	Project      string `yaml:"project"`
	// Azure makes it Azure OpenAI; nil is OpenAI, or a service that speaks as it does.
	Azure *Azure `yaml:"azure"`

	// Epochs, BatchSize and LearningRateMultiplier go to the service; 0 leaves the
	// choice to it.
	Epochs                 int     `yaml:"epochs"`
	BatchSize              int     `yaml:"batch_size"`
	LearningRateMultiplier float64 `yaml:"learning_rate_multiplier"`
	// Seed goes to the service; nil leaves it out.
	Seed *int64 `yaml:"seed"`
	// Suffix begins the last part of the new model's name: letters, digits and
	// hyphens, at most 40; empty means agl.
	Suffix string `yaml:"suffix"`
	// PricePerMillion is what a million trained tokens cost, in any currency; 0
	// leaves costs out.
	PricePerMillion float64 `yaml:"price_per_million_tokens"`

	// PollEvery is the time between looks at a job; 0 means 15 s. Calls that
	// failed are repeated sooner, after a second at first.
	PollEvery time.Duration `yaml:"poll_every"`
	// Outage is how long the service may fail before its last error is returned; 0
	// means 15 minutes.
	Outage time.Duration `yaml:"outage"`
	// Limit bounds the wait for one job; 0 means 24 hours. The job goes on.
	Limit time.Duration `yaml:"limit"`
	// RequestTimeout bounds one call, an upload too; 0 means 5 minutes.
	RequestTimeout time.Duration `yaml:"request_timeout"`
	// CancelOnStop cancels the job when the context ends. By default it goes on at
	// the service and the run that is resumed finds it.
	CancelOnStop bool `yaml:"cancel_on_stop"`

	// Client makes the calls; nil means one of its own.
	Client *http.Client `yaml:"-"`
	// LookupEnv finds the keys; nil means [os.LookupEnv].
	LookupEnv func(name string) (string, bool) `yaml:"-"`
	// Logger is told of repeated calls and of a job's events; nil discards.
	Logger *slog.Logger `yaml:"-"`
}

// Azure is what Azure needs beside: its jobs are at the resource, but a model can
// only be called once the management service has deployed it.
type Azure struct {
	// APIVersion of the resource; empty means 2025-04-01-preview.
	APIVersion string `yaml:"api_version"`
	// TrainingType is where it is trained: Standard, GlobalStandard or
	// DeveloperTier; empty sends none.
	TrainingType string `yaml:"training_type"`

	// Subscription, ResourceGroup and Account name the resource to the management
	// service; required.
	Subscription  string `yaml:"subscription"`
	ResourceGroup string `yaml:"resource_group"`
	Account       string `yaml:"account"`
	// Deployment begins the names of deployments; required.
	Deployment string `yaml:"deployment"`
	// SKU and Capacity are those of deployments; empty and 0 mean DeveloperTier
	// and 250.
	SKU      string `yaml:"sku"`
	Capacity int    `yaml:"capacity"`
	// MaxDeployments is how many deployments of this name may exist: the oldest
	// are deleted to make room; 0 means 2.
	MaxDeployments int `yaml:"max_deployments"`
	// ManagementURL is the management service; empty means
	// https://management.azure.com, its version 2025-06-01.
	ManagementURL string `yaml:"management_url"`
	// TokenEnv names the variable with a token of the management service. Such
	// tokens last an hour or so; empty asks the az program for one each time.
	TokenEnv string `yaml:"token_env"`
	// Token returns a token of the management service; nil does as TokenEnv says.
	Token func(ctx context.Context) (string, error) `yaml:"-"`
}

func (c Config) withDefaults() Config {
	c.BaseURL = strings.TrimRight(cmp.Or(c.BaseURL, "https://api.openai.com/v1"), "/")
	c.Suffix = cmp.Or(c.Suffix, "agl")
	c.PollEvery = cmp.Or(c.PollEvery, 15*time.Second)
	c.Outage = cmp.Or(c.Outage, 15*time.Minute)
	c.Limit = cmp.Or(c.Limit, 24*time.Hour)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 5*time.Minute)
	key := "OPENAI_API_KEY"
	if c.Azure != nil {
		key = "AZURE_OPENAI_API_KEY"
		a := *c.Azure
		a.APIVersion = cmp.Or(a.APIVersion, "2025-04-01-preview")
		a.SKU = cmp.Or(a.SKU, "DeveloperTier")
		a.Capacity = cmp.Or(a.Capacity, 250)
		a.MaxDeployments = cmp.Or(a.MaxDeployments, 2)
		a.ManagementURL = strings.TrimRight(cmp.Or(a.ManagementURL, "https://management.azure.com"), "/")
		c.Azure = &a
	}
	c.APIKeyEnv = cmp.Or(c.APIKeyEnv, key)
	if c.Client == nil {
		c.Client = &http.Client{}
	}
	if c.LookupEnv == nil {
		c.LookupEnv = os.LookupEnv
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate returns an error naming the field that is out of range.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Model == "":
		return errors.New("openai: Model: must be set")
	case c.Epochs < 0:
		return fmt.Errorf("openai: Epochs: %d: must not be negative", c.Epochs)
	case c.BatchSize < 0:
		return fmt.Errorf("openai: BatchSize: %d: must not be negative", c.BatchSize)
	case !(c.LearningRateMultiplier >= 0) || math.IsInf(c.LearningRateMultiplier, 0):
		return fmt.Errorf("openai: LearningRateMultiplier: %v: must be finite and not negative", c.LearningRateMultiplier)
	case !(c.PricePerMillion >= 0) || math.IsInf(c.PricePerMillion, 0):
		return fmt.Errorf("openai: PricePerMillion: %v: must be finite and not negative", c.PricePerMillion)
	case !regexp.MustCompile(`^[A-Za-z0-9-]{1,40}$`).MatchString(c.Suffix):
		return fmt.Errorf("openai: Suffix: %q: must be letters, digits and hyphens, at most 40", c.Suffix)
	case !strings.HasSuffix(c.APIKeyEnv, "_API_KEY") || strings.HasPrefix(c.APIKeyEnv, "AGL_"):
		return fmt.Errorf("openai: APIKeyEnv: %q: must end in _API_KEY and not begin with AGL_, as the proxy wants it", c.APIKeyEnv)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"PollEvery", c.PollEvery}, {"Outage", c.Outage}, {"Limit", c.Limit}, {"RequestTimeout", c.RequestTimeout}} {
		if d.value < 0 {
			return fmt.Errorf("openai: %s: %v: must not be negative", d.name, d.value)
		}
	}
	if err := checkURL(c.BaseURL); err != nil {
		return fmt.Errorf("openai: BaseURL: %w", err)
	}
	return c.Azure.validate(c)
}

func (a *Azure) validate(c Config) error {
	if a == nil {
		return nil
	}
	for _, f := range []struct{ name, value string }{
		{"Subscription", a.Subscription},
		{"ResourceGroup", a.ResourceGroup},
		{"Account", a.Account},
		{"Deployment", a.Deployment},
	} {
		if f.value == "" {
			return fmt.Errorf("openai: Azure.%s: must be set", f.name)
		}
	}
	switch {
	case strings.HasPrefix(c.BaseURL, "https://api.openai.com"):
		return errors.New("openai: BaseURL: with Azure it must be the address of the resource, as in https://NAME.openai.azure.com")
	case c.Organization != "" || c.Project != "":
		return errors.New("openai: Organization, Project: Azure has neither; leave them out")
	case len(a.Deployment) > 40:
		return fmt.Errorf("openai: Azure.Deployment: %q: must have at most 40 characters", a.Deployment)
	case a.Capacity < 0:
		return fmt.Errorf("openai: Azure.Capacity: %d: must not be negative", a.Capacity)
	case a.MaxDeployments < 0:
		return fmt.Errorf("openai: Azure.MaxDeployments: %d: must not be negative", a.MaxDeployments)
	}
	if err := checkURL(a.ManagementURL); err != nil {
		return fmt.Errorf("openai: Azure.ManagementURL: %w", err)
	}
	return nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("%q is no URL such as https://api.openai.com/v1", text)
	case u.User != nil:
		return errors.New("a user name or password in a URL ends up in logs; give the key by APIKeyEnv")
	}
	return nil
}
