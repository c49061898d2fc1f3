"""The HIP target: facts about architectures, the device header, and the plugin that prints and builds."""
