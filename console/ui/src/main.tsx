import "./styles/mantine.css";
import "./app.css";
import { createTheme, MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createRoot } from "react-dom/client";
import { Router } from "wouter";
import { ApiError } from "./api/client";
import { App } from "./app";
import { firstLanguage, LanguageProvider } from "./i18n";
import { useGuardedLocation } from "./lib/leaving";
import { nonce } from "./lib/nonce";

const theme = createTheme({
  primaryColor: "blue",
  primaryShade: 8,
  autoContrast: true,
  defaultRadius: "sm",
  fontFamily:
    'system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", sans-serif',
  fontFamilyMonospace: 'ui-monospace, "SF Mono", "DejaVu Sans Mono", "Noto Sans Mono CJK SC", monospace',
  fontSizes: { xs: "12px", sm: "13px", md: "14px", lg: "16px", xl: "20px" },
  headings: {
    sizes: {
      h1: { fontSize: "20px", lineHeight: "1.3" },
      h2: { fontSize: "16px", lineHeight: "1.4" },
      h3: { fontSize: "14px", lineHeight: "1.4" },
    },
  },
  respectReducedMotion: true,
  components: {
    Anchor: { defaultProps: { underline: "always" } },
    TextInput: { defaultProps: { size: "sm" } },
    Modal: { defaultProps: { transitionProps: { duration: 0 } } },
    Tooltip: {
      defaultProps: { openDelay: 250, multiline: true, maw: 360, events: { hover: true, focus: true, touch: true } },
    },
  },
});

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 1000,
      // A retry can help after a network error or a 5xx, but not after another refusal.
      retry: (count, e) => count < 2 && (!(e instanceof ApiError) || e.status === 0 || e.status >= 500),
    },
  },
});

const root = document.getElementById("root");
if (!root) throw new Error("the page has no root");
firstLanguage().then(
  (language) =>
    createRoot(root).render(
      <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={() => nonce}>
        <QueryClientProvider client={client}>
          <LanguageProvider first={language}>
            <Notifications position="bottom-right" />
            <Router hook={useGuardedLocation}>
              <App />
            </Router>
          </LanguageProvider>
        </QueryClientProvider>
      </MantineProvider>,
    ),
  () => (root.textContent = "The web console cannot be loaded. Reload the page."),
);
