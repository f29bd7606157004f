var e={};function n(){return typeof process<"u"&&e?"production":"development"}export{n as g};
