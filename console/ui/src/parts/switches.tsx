import { Button, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useLanguage } from "../i18n";
import { Icon, icons } from "./icons";

export function LanguageSwitch() {
  const { language, setLanguage } = useLanguage();
  const other = language === "en" ? "简体中文" : "English";
  return (
    <Button
      variant="subtle"
      color="gray"
      size="compact-sm"
      lang={language === "en" ? "zh-Hans" : "en"}
      leftSection={<Icon d={icons.language} />}
      onClick={() => setLanguage(language === "en" ? "zh" : "en")}
    >
      {other}
    </Button>
  );
}

export function ThemeSwitch() {
  const { t } = useLanguage();
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light", { getInitialValueInEffect: false });
  const next = scheme === "dark" ? "light" : "dark";
  return (
    <Button
      variant="subtle"
      color="gray"
      size="compact-sm"
      leftSection={<Icon d={scheme === "dark" ? icons.sun : icons.moon} />}
      onClick={() => setColorScheme(next)}
    >
      {t(next === "dark" ? "theme.dark" : "theme.light")}
    </Button>
  );
}
